"How a run begins: fine-tuning, folders that hold something else, what is said."
import json
import shutil
from dataclasses import dataclass, replace

import pytest
import safetensors.torch
import torch
from helpers import EN_DE, SMALL_OVERRIDES, snapshot_dir, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files

from annotated_transformer.model import seq2seq
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import get_recipe, with_overrides
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.run_setup import _init_model, _prepare_run, _resolve_model_config
from annotated_transformer.utils.validation import UserError


def test_what_is_said_when_a_run_begins(tmp_path, capfd):
    assert 'warmup_steps=5 is not less than max_steps=4: the learning rate never leaves warm-up' in run_in_process(capfd, 'train', '--output_dir', tmp_path / 'a', *cli_args(SMALL_OVERRIDES | dict(max_steps=4, warmup_steps=5))).stderr
    settings = SMALL_OVERRIDES | dict(max_steps=4, warmup_steps=1, lr_scheduler_type='cosine')
    assert not run_in_process(capfd, 'train', '--output_dir', tmp_path / 'b', *cli_args(settings)).returncode
    said = run_in_process(capfd, 'train', '--output_dir', tmp_path / 'b', '--resume', *cli_args(settings | dict(max_steps=8))).stderr
    assert 'max_steps=4 → 8: with lr_scheduler_type=cosine the learning rate of step 4 was 0.00e+00 and is' in said


def french(folder): return write_files(folder, train_en=number_lines('en'), train_fr=number_lines('fr'))

SHORT = dict(max_steps=4, peak_lr=1e-4)

def tune(capfd, trained, folder, *more, settings=SHORT):
    return run_in_process(capfd, 'train', '--finetune_from', trained, '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'fr', '--data_dir', folder / 'text', '--output_dir', folder / 'out',
                   *cli_args(settings), *more)

def test_fine_tuning(trained, capfd, tmp_path):
    "Weights, tokens and recipe come from the other run; the first of them are where that run ended; resumed, it needs the other no more."
    french(tmp_path / 'text')
    twin = shutil.copytree(trained, tmp_path / 'twin')
    said = assert_success(tune(capfd, twin, tmp_path)).stderr
    out = tmp_path / 'out'
    assert said.strip().split('\n')[-1].startswith(f'{out}: 4 steps, validation perplexity ') and f'transformer_translate {out}' in said
    assert (out / 'tokenizer.model').read_bytes() == (trained / 'tokenizer.model').read_bytes()
    config = json.loads((out / 'config.json').read_text())
    assert config['model']['d_model'] == 64 and config['finetune_from'] == str(twin) and len(config['finetune_sha256']) == 64 and config['target_lang'] == 'fr'
    shutil.rmtree(twin)
    assert_success(tune(capfd, twin, tmp_path, '--resume', settings=dict(max_steps=6)))
    assert RunDirectory(out).checkpoints()[-1].name == 'step-00000006'

def test_fine_tuning_begins_where_the_other_ended(trained, capfd, tmp_path):
    "With a learning rate of almost nothing the weights stay those of the other run."
    french(tmp_path / 'text')
    assert_success(tune(capfd, trained, tmp_path, settings=dict(max_steps=1, peak_lr=1e-12)))
    ours, theirs = (safetensors.torch.load_file(d / 'model.safetensors') for d in (tmp_path / 'out', trained))
    for name in theirs: torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6)

@pytest.mark.parametrize('settings, said', [(dict(N=2), 'trained with a different N (1 → 2)'), (dict(preprocessing='moses_lc'), 'a different preprocessing (raw → moses_lc)'), (dict(h=2), 'a different h (4 → 2)')])
def test_another_model_cannot_go_on(trained, capfd, tmp_path, settings, said):
    french(tmp_path / 'text')
    assert_user_error(tune(capfd, trained, tmp_path, settings=settings), said)
    assert not (tmp_path / 'out' / 'config.json').exists()

def test_nothing_to_begin_with(own, capfd, tmp_path):
    french(tmp_path / 'text')
    assert_user_error(tune(capfd, tmp_path / 'none', tmp_path), 'none contains no config.json')
    (own / 'model.safetensors').unlink()
    assert_user_error(tune(capfd, own, tmp_path), 'contains no model.safetensors: finish the run')

def test_unknown_tokens_are_counted(trained, capfd, tmp_path):
    "The small tokenizer has no bytes to fall back on: text in another script is unknown to it, and the user hears how much."
    write_files(tmp_path / 'text', train_en=number_lines('en', 60), train_fr='\n'.join(['ноль'] * 60))
    assert '% of the tokens are unknown to the tokenizer in' in assert_success(tune(capfd, trained, tmp_path)).stdout

@pytest.fixture
def text(tmp_path): return write_files(tmp_path / 'exp' / 'data', train_en=number_lines('en', 60), train_de=number_lines('de', 60))

@pytest.mark.parametrize('data_dir, out', [('exp/data', 'exp'), ('exp/data', 'exp/data'), ('exp/data/train.en', 'exp'), ('data', '.'), ('exp/data', 'exp/data/../../exp')])
def test_corpus_within_the_run(text, data_dir, out, capfd, monkeypatch):
    "--data_dir inside --output_dir: the corpus stays."
    before = snapshot_dir(text)
    monkeypatch.chdir(text.parents[0 if data_dir == 'data' else 1])
    result = run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', data_dir, '--output_dir', out, *cli_args(SMALL_OVERRIDES))
    assert_user_error(result, 'choose another --output_dir')
    assert snapshot_dir(text) == before

def test_run_within_the_corpus(text, capfd):
    "The reverse is safe for files that are known by name, and refused where every file would be read."
    before = snapshot_dir(text)
    result = run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', text / 'runs' / 'a', *cli_args(SMALL_OVERRIDES))
    assert result.returncode == 0 and before.items() <= snapshot_dir(text).items(), result.stderr
    assert_user_error(run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', 'wmt14', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', text, '--output_dir', text / 'runs' / 'b', *cli_args(SMALL_OVERRIDES)), 'overlap')

def test_files_of_others(text, capfd):
    "A folder with anything in it that no run made."
    for name in 'notes.txt', 'config.json', 'data/train.en':
        folder = write_files(text.parents[1] / name.replace('/', '-'))
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('{}')
        assert_user_error(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', folder, *cli_args(SMALL_OVERRIDES)), 'contains other files', name.split('/')[0])
        assert snapshot_dir(folder) == {name: b'{}'}

def test_resumed_without_its_data_dir(text, capfd, tmp_path):
    "The message names the folder that the run was started with, and the run is not touched."
    args = '--recipe', 'demo', *EN_DE, '--output_dir', tmp_path / 'run', *cli_args(SMALL_OVERRIDES | dict(max_steps=2, warmup_steps=1))
    assert_success(run_in_process(capfd, 'train', *args, '--data_dir', text))
    before = snapshot_dir(tmp_path / 'run')
    assert_user_error(run_in_process(capfd, 'train', *args, '--resume'), f'was started with --data_dir {text}: give it as before')
    assert snapshot_dir(tmp_path / 'run') == before

@pytest.mark.parametrize('resume', [[], ['--resume']])
def test_finished_model(own, capfd, resume):
    "Its checkpoints were removed: the model is not trained over, nor is a new one begun in its place."
    shutil.rmtree(own / 'checkpoints')
    before = snapshot_dir(own)
    args = '--recipe', 'demo', *EN_DE, '--data_dir', own.parent, '--output_dir', own, *cli_args(SMALL_OVERRIDES)
    write_files(own.parent, train_en=number_lines('en'), train_de=number_lines('de'))
    assert_user_error(run_in_process(capfd, 'train', *args, *resume), 'already exists, but the checkpoints of its run are missing')
    assert snapshot_dir(own) == before

def test_chunks_shapes_and_tf32_reach_the_training(tmp_path, capfd, monkeypatch):
    "Each field acts; the size of a chunk may change when a run is resumed, the shapes of its batches may not."
    seen, plain = [], seq2seq.chunked_loss
    def recorded(projection, hidden, labels, eps_ls, pad_id, chunk_size):
        seen.append((chunk_size, tuple(hidden.shape[:2])))
        return plain(projection, hidden, labels, eps_ls, pad_id, chunk_size)
    monkeypatch.setattr(seq2seq, 'chunked_loss', recorded)
    def go(*more, **fields): return run_in_process(capfd, 'train', '--output_dir', tmp_path / 'a', *more, *cli_args(SMALL_OVERRIDES | dict(max_steps=20, save_every='20 steps', num_batch_buckets=2) | fields))
    assert_success(go(loss_chunk_size=70, tf32=True))
    assert {n for n, _ in seen} == {70} and len({shape for _, shape in seen}) == 2 and len(seen) == 20
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    assert_user_error(go('--resume', num_batch_buckets=3), 'num_batch_buckets (2 → 3)')
    seen.clear()
    assert_success(go('--resume', max_steps=21, loss_chunk_size=90))
    assert {n for n, _ in seen} == {90}

def test_a_model_without_hidden_states_has_no_chunks(trained):
    class Cold(Transformer):
        def forward(self, src, tgt): return 2 * super().forward(src, tgt)
    run = RunDirectory(trained)
    model, recipe = Cold(run.recipe.model, run.config['pad_id']), with_overrides(run.recipe, loss_chunk_size=7)
    assert _init_model(recipe, run).loss_chunk_size == 7
    with pytest.raises(UserError, match='loss_chunk_size=7: Cold has a `forward` of its own'): _init_model(recipe, run, model=model)
    assert _init_model(run.recipe, run, model=model) is model                  # not asked for

def test_what_is_fast_on_a_cpu_is_not_done_on_a_gpu(trained):
    run = RunDirectory(trained)
    on_cpu, on_gpu = (_init_model(run.recipe, run, device) for device in ('cpu', 'cuda'))
    assert on_cpu.loss_chunk_size and on_gpu.loss_chunk_size is None
    assert type(on_gpu.src_position.dropout) is torch.nn.Dropout is not type(on_cpu.src_position.dropout)

SMALL = get_recipe('demo', **SMALL_OVERRIDES)

def prepare(text, name, recipe=SMALL, **more): return _prepare_run(RunDirectory(text.parent / name), recipe, ('text', 'en', 'de'), text, **more)

def test_killed_while_its_first_checkpoint_was_written(text):
    "Its best weights may be there already: they are refused, but for beside a half-written checkpoint."
    assert prepare(text, 'a') is None
    run = RunDirectory(text.parent / 'a')
    run.best_file.write_text('')
    with pytest.raises(FileExistsError, match='checkpoints of its run are missing'): prepare(text, 'a', resume=True)
    (run.checkpoint_dir / 'step-00000020.tmp').mkdir(parents=True)
    assert prepare(text, 'a', resume=True) is None

def test_two_runs_share_the_tokenised_text(text):
    "One file on the disk, linked twice, for two seeds of one corpus."
    for seed in 0, 1: prepare(text, str(seed), replace(SMALL, seed=seed))
    assert len({p.stat().st_ino for seed in '01' for p in (RunDirectory(text.parent / seed).data / 'train').glob('*.arrow')}) == 1

def test_a_fine_tuned_run_is_resumed_as_one(trained, capfd, tmp_path):
    french(tmp_path / 'text')
    assert_success(tune(capfd, trained, tmp_path, settings=SHORT))
    recipe = RunDirectory(tmp_path / 'out').recipe
    with pytest.raises(UserError, match='a different finetune_from'):
        _prepare_run(RunDirectory(tmp_path / 'out'), recipe, ('text', 'en', 'fr'), tmp_path / 'text', resume=True)

def test_settings_that_depend_on_the_tokenizer(trained):
    "A configuration with the method has it called; any other stays as it is."
    @dataclass(frozen=True)
    class EndConfig(TransformerConfig):
        last: tuple | None = None
        def with_tokenizer(self, tokenizer, source): return replace(self, last=(tokenizer.eos_id, source))
    run = RunDirectory(trained)
    assert _resolve_model_config(run.recipe, run, 'en') == run.recipe
    assert _resolve_model_config(replace(run.recipe, model=EndConfig(100)), run, 'en').model.last == (3, 'en')
