"Who knows the layout of a run, what may differ, and the one door; a run whose files do not belong together is refused."
import ast
import json
import random
import re
import shutil

import pytest
import torch
from helpers import EN_DE, ROOT, SMALL_OVERRIDES, TRAINED_OVERRIDES, edit_config, snapshot_dir, cli_args, run_in_process, number_lines, assert_user_error, corrupt_weights, write_files

from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.pretrained import _diff_settings
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory, RunLockedError, load_model

FILES = {name: 'run_directory.py' for name in ('config.json', 'model.safetensors', 'best.safetensors', 'metrics.jsonl', 'checkpoints', 'training_state.pt', 'SHA256SUMS')} | {
    'tokenizer.model': 'data/tokenizer.py', 'source.model': 'data/tokenizer.py', '.lock': 'utils/io.py'}

@pytest.mark.parametrize('name', FILES)
def test_each_file_is_spelt_in_one_module(name):
    "As a path, that is: a message or a docstring may speak of it."
    def spelt(path):
        tree = ast.parse(path.read_text())
        docs = {node.body[0].value for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body and isinstance(node.body[0], ast.Expr)}
        return any(isinstance(node, ast.Constant) and node not in docs and isinstance(node.value, str) and re.fullmatch(rf'(\S*/)?{re.escape(name)}(/\S*)?', node.value)
                   for node in ast.walk(tree))
    package = ROOT / 'annotated_transformer'
    assert [str(p.relative_to(package)) for p in package.rglob('*.py') if p.name != '_modidx.py' and spelt(p)] == (['recipe.py'] if name == 'checkpoints' else []) + [FILES[name]]     # a recipe has a part of this name

@pytest.mark.parametrize('resumed, was, now, found', [
    (False, dict(N=1, P_drop=.1, max_len=60, eps_ls=.1), dict(N=1, P_drop=0., max_len=90, eps_ls=0.), {}),
    (False, dict(N=1), dict(N=2), dict(N=(1, 2))), (False, {}, dict(N=2), dict(N=(None, 2))), (False, dict(max_steps=1), dict(max_steps=2), dict(max_steps=(1, 2))),
    (True, dict(max_steps=1, save_every='a', early_stopping_patience=1, gradient_checkpointing=True), dict(max_steps=2, save_every='b', early_stopping_patience=None, gradient_checkpointing=False), {}),
    (True, dict(P_drop=.1, seed=0), dict(P_drop=0., seed=0), dict(P_drop=(.1, 0.)))])
def test_what_may_differ(resumed, was, now, found): assert _diff_settings(was, now, resumed) == found

def same(a, b): return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))

def test_one_door(own):
    "The three doors mean the same by `weights`."
    run = RunDirectory(own)
    corrupt_weights(run.best_file, lambda w: {k: v + 1 for k, v in w.items()})
    checkpoint, = run.checkpoints()
    corrupt_weights(checkpoint / 'model.safetensors', lambda w: {k: v + 2 for k, v in w.items()})
    plain = load_model(own)
    files = dict(average=own / 'model.safetensors', best='best.safetensors', last=checkpoint / 'model.safetensors')
    for more, (kind, file) in enumerate(files.items()):
        model, *others = load_model(own, kind), load_model(own, file), Translator.from_pretrained(own, kind, 'cpu').models[0]
        assert all(same(model, other) for other in others) and torch.allclose(model.output_projection.weight, plain.output_projection.weight + more)
    with pytest.raises(ValueError, match="a model of architecture 'transformer', not 'bytenet'"): load_model(own, architecture='bytenet')
    for door in load_model, Translator.from_pretrained:
        with pytest.raises(ValueError, match="weights='newest' is unknown: use one of average, best, last"): door(own, 'newest')
        with pytest.raises(FileNotFoundError, match='contains no checkpoints/step-00000007/model.safetensors: use average, best, last or an existing file'): door(own, 'checkpoints/step-00000007/model.safetensors')

def test_saved_and_opened_again(own, tmp_path):
    translator = Translator.from_pretrained(own, 'best', device='cpu')
    translator.save_pretrained(tmp_path / 'given')
    assert {p.name for p in (tmp_path / 'given').iterdir()} == {'.annotated_transformer', 'config.json', 'tokenizer.model', 'model.safetensors'}
    again = Translator.from_pretrained(tmp_path / 'given', device='cpu')
    assert same(again.models[0], translator.models[0]) and again.config == translator.config and again.translate(['twenty-one']) == translator.translate(['twenty-one'])
    assert get_recipe(tmp_path / 'given/config.json') == RunDirectory(tmp_path / 'given').recipe == RunDirectory(own).recipe      # and a recipe, like that of a run
    with pytest.raises(FileExistsError, match='contains output of another command'): translator.save_pretrained(own)
    ensemble = Translator(translator.models * 2, translator.tokenizer, translator.config)
    with pytest.raises(ValueError, match='an ensemble of 2 models cannot be saved'): ensemble.save_pretrained(tmp_path / 'ensemble')


def test_other_tokenizer(own, capfd, tmp_path):
    "Another run's tokenizer with as many pieces."
    write_files(tmp_path / 'fr', train_en=number_lines('en'), train_fr=number_lines('fr'))
    run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'fr', '--data_dir', tmp_path / 'fr', '--output_dir', tmp_path / 'other', *cli_args(SMALL_OVERRIDES))
    shutil.copy(tmp_path / 'other' / 'tokenizer.model', own)
    for command in 'translate', 'evaluate', 'export': assert_user_error(run_in_process(capfd, command, own), 'tokenizer.model does not match config.json')


NAME = 'encoder.layers.0.feed_forward.W_1.bias'

CORRUPTED = {
    'one value for all': (lambda w: w.update({NAME: torch.ones(1)}), f'{NAME} has shape (1,)'),
    'missing':           (lambda w: {k: v for k, v in w.items() if k != NAME}, f'{NAME} is missing'),
    'one too many':      (lambda w: w.update({'gate.weight': torch.ones(3)}), 'unexpected tensor gate.weight'),
    'not a number':      (lambda w: w | {NAME: w[NAME] * float('nan')}, f'{NAME} has values that are not finite'),
}

@pytest.mark.parametrize('case', CORRUPTED)
def test_weights_that_do_not_fit(own, capfd, case, tmp_path):
    "In a model, and in a checkpoint whose digests agree with it."
    f, said = CORRUPTED[case]
    newest = sorted((own / 'checkpoints').iterdir())[-1]
    corrupt_weights(newest / 'model.safetensors', f, newest / 'SHA256SUMS')
    write_files(tmp_path, train_en=number_lines('en'), train_de=number_lines('de'))
    args = '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path, '--output_dir', own, '--resume', *cli_args(TRAINED_OVERRIDES | dict(max_steps=201))
    assert_user_error(run_in_process(capfd, 'train', *args), 'model.safetensors', said)
    corrupt_weights(own / 'model.safetensors', f)
    for command in 'translate', 'evaluate', 'export': assert_user_error(run_in_process(capfd, command, own), 'model.safetensors', said)

@pytest.mark.parametrize('values, said', [
    (dict(h=2, d_k=32, d_v=32), 'trained with h=4, but config.json has h=2'),         # the same shapes, another function
    (dict(norm='pre'), 'norm=post'), (dict(h=16), 'h=4'), (dict(d_ff=64), 'd_ff'), (dict(N=3), 'trained with N=1'), (dict(vocab_size=99), '99'),
    (dict(positions='learned'), 'positions'), (dict(tie_embeddings=False), 'tie_embeddings'), (dict(d_model=32), 'd_model'),
    (dict(h=-1), 'h=-1 must be at least 1'), (dict(h='8'), "h='8': must be"), (dict(N=10**7), 'N='), (dict(d_ff=10**9), 'd_ff'), (dict(d_ff=10**30), 'is more than'),
    (dict(model=None), 'must be a mapping of fields'), (dict(model=[1]), 'must be a mapping of fields'), (dict(pad_id='x'), "pad_id='x'"), (dict(pad_id=5000), 'pad_id=5000'),
    (dict(P_drop=None), 'P_drop=None'), (dict(preprocessing=7), 'preprocessing=7'), (dict(source_lang=None), "source_lang=None")])
def test_edited_configuration(own, capfd, values, said):
    before = snapshot_dir(own)
    edit_config(own / 'config.json', **values)
    for command in 'translate', 'evaluate', 'export': assert_user_error(run_in_process(capfd, command, own), said)
    assert {k: v for k, v in snapshot_dir(own).items() if k != 'config.json'} == {k: v for k, v in before.items() if k != 'config.json'}

ODD = [None, True, -1, 0, 1e308, 10**40, '', 'x', [], {}, [1, 2], {'a': 1}, 3.5, float('nan'), 'a' * 10**5]

def mutated(data, rng):
    "A configuration with some bytes, or one value, changed, removed or added."
    if rng.random() < .5:
        b, i = bytearray(data), rng.randrange(len(data))
        rng.choice([lambda: b.__setitem__(i, rng.randrange(256)), lambda: b.__delitem__(slice(i, i + rng.randrange(1, 40))),
                    lambda: b.__setitem__(slice(i, i), bytes(rng.choices(range(32, 127), k=3)))])()
        return bytes(b)
    config = json.loads(data)
    where = config['model'] if rng.random() < .6 else config
    name = rng.choice(list(where))
    if rng.random() < .3: del where[name]
    elif rng.random() < .4 and type(where[name]) in (int, float): where[name] *= 2
    else: where[name] = rng.choice(ODD)
    return json.dumps(config).encode()

@pytest.mark.nightly
def test_any_configuration(own):
    "Whatever a configuration says, it is refused in words that name it, or changes nothing."
    from annotated_transformer.cli.main import _user_message
    write_to = lambda: Translator.from_pretrained(own, device='cpu').translate(['twenty-one'], beam=1)
    whole, right, rng, refusals = (own / 'config.json').read_bytes(), write_to(), random.Random(0), 0
    for _ in range(100):
        (own / 'config.json').write_bytes(mutated(whole, rng))
        try: assert write_to() == right, (own / 'config.json').read_bytes()
        except (ValueError, OSError) as e: refusals += str(own) in _user_message(e)
    assert refusals > 40

def test_the_log(tmp_path):
    "An incomplete last line is left out, as are steps after `until`; another corrupt line is named."
    run = RunDirectory(tmp_path)
    assert run.metrics() == []
    run.metrics_file.write_text('{"step": 10, "loss": 3.0}\n{"step": 20, "loss": 2.0}\n{"step": 30, "lo')
    assert [m['loss'] for m in run.metrics()] == [3., 2.] and [m['loss'] for m in run.metrics(until=10)] == [3.]
    run.metrics_file.write_text('{"step": 10}\nnothing\n')
    with pytest.raises(ValueError, match='line 2 is corrupt'): run.metrics()

def test_two_runs_in_one_folder(tmp_path):
    "The second is refused while the first has the lock."
    run = RunDirectory(tmp_path / 'run')
    run.acquire('numbers')
    with pytest.raises(RunLockedError, match='is in use by another run'): RunDirectory(tmp_path / 'run').acquire('numbers')
    run.lock.release()
    RunDirectory(tmp_path / 'run').acquire('numbers')
