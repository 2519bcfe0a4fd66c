"Several processes share an update; a killed or interrupted run goes on as if nothing had happened."
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import safetensors.torch
import torch
from accelerate.commands.config import load_config_from_file
from helpers import EN_DE, ROOT, SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files
from pages import in_fresh_process
from processes import Command, run_forked, run_ranks, run_script
from torch.testing import assert_close

from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.model.flops import train_flops
from annotated_transformer.model.seq2seq import Seq2SeqModel, register_architecture
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import get_recipe, with_overrides
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training import metrics_log
from annotated_transformer.training import trainer as training


def test_fp16_on_a_cpu_is_refused(tmp_path, capfd, monkeypatch):
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(True)
    monkeypatch.setenv('ACCELERATE_MIXED_PRECISION', 'fp16')
    try: assert_user_error(run_in_process(capfd, 'train', '--output_dir', tmp_path / 'a', *cli_args(SMALL_OVERRIDES)), 'fp16 needs a GPU')
    finally: AcceleratorState._reset_state(True)


def test_every_recipe_seed_step_and_process_draws_other_dropout_masks():
    "On a CPU PyTorch reads 32 bits of a seed: the recipe's seed must be among them."
    draws = set()
    for seed, step, process in product((0, 1, 2, 3, 2**23 - 1), (1, 2, 3, 300_000), (0, 1, 7)):
        torch.manual_seed(training._dropout_seed(seed, step, process))
        draws.add(tuple(torch.rand(4).tolist()))
    assert len(draws) == 5 * 4 * 3


EARLY = SMALL_OVERRIDES | dict(max_steps=40, peak_lr=1e-12, save_every='2 steps', early_stopping_patience=3, average_checkpoints=2)

def test_early_stopping(capfd, tmp_path):
    "A model that learns nothing ends after `early_stopping_patience` validations; interrupted and resumed, at the same place with the same weights."
    text, both = write_files(tmp_path / 'text', train_en=number_lines('en'), train_de=number_lines('de')), []
    def go(out, settings, *more): return run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', out, *cli_args(settings), *more)
    noise = EARLY | dict(peak_lr=0.5)                         # best at the first validation or soon after
    assert_success(go(tmp_path / 'whole', noise))
    assert_success(go(tmp_path / 'parts', noise | dict(max_steps=4)))
    said = assert_success(go(tmp_path / 'parts', noise, '--resume')).stderr
    for out in 'whole', 'parts':
        losses = [m['valid_loss'] for m in RunDirectory(tmp_path / out).metrics() if 'valid_loss' in m]
        both.append((losses, RunDirectory(tmp_path / out).checkpoints()[-1].name, (tmp_path / out / 'model.safetensors').read_bytes()))
    assert both[0] == both[1]
    losses, newest, _ = both[0]
    assert len(losses) < 20 and losses.index(min(losses)) == len(losses) - 4 and newest == f'step-{2 * len(losses):08d}'
    assert f'{2 * len(losses)} steps' in said
    again = assert_success(go(tmp_path / 'parts', noise, '--resume'))
    assert RunDirectory(tmp_path / 'parts').checkpoints()[-1].name == newest and 'stopped early' in again.stderr
    more = assert_success(go(tmp_path / 'parts', noise | dict(early_stopping_patience=30, max_steps=2 * len(losses) + 2), '--resume'))   # patience may grow
    assert f'{2 * len(losses) + 2} steps' in more.stderr

def test_patience_of_nothing(capfd, tmp_path):
    assert_user_error(run_in_process(capfd, 'train', '--output_dir', tmp_path / 'out', *cli_args(SMALL_OVERRIDES | dict(early_stopping_patience=0))), 'early_stopping_patience=0 must be greater than or equal to 1')

def test_bleu_in_the_log(capfd, tmp_path):
    "It is logged and samples are kept; the weights are those of a run without it."
    text = write_files(tmp_path / 'text', train_en=number_lines('en'), train_de=number_lines('de'))
    for out, more in ('with', ['--eval_bleu_samples', '10']), ('without', []):
        assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', tmp_path / out, *cli_args(SMALL_OVERRIDES | dict(max_steps=4)), *more))
    assert (tmp_path / 'with/model.safetensors').read_bytes() == (tmp_path / 'without/model.safetensors').read_bytes()
    lines = RunDirectory(tmp_path / 'with').metrics()
    assert [m['step'] for m in lines if 'valid_bleu' in m] == [2, 4] and not any('valid_bleu' in m for m in RunDirectory(tmp_path / 'without').metrics())
    assert (tmp_path / 'with/samples.txt').read_text().count('reference: ') == 6
    assert all(m['grad_norm'] > 0 for m in lines if 'loss' in m)
    assert_user_error(run_in_process(capfd, 'train', '--output_dir', tmp_path / 'new', '--eval_bleu_samples', '-1'), 'eval_bleu_samples=-1 must be at least 0')

@pytest.mark.parametrize('architecture, logged', [('transformer', True), ('counted_by_nobody', False)])
def test_the_share_of_the_peak_in_the_log(capfd, tmp_path, monkeypatch, architecture, logged):
    "FLOPs of the steps over time and peak, as the benchmarks count them; none for another architecture."
    if not logged: register_architecture('counted_by_nobody')(type('Other', (Transformer,), {}))
    text = write_files(tmp_path / 'text', train_en=number_lines('en'), train_de=number_lines('de'))
    monkeypatch.setattr(metrics_log, 'peak_flops', lambda device: 1e12)
    assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', tmp_path / 'run', *cli_args(SMALL_OVERRIDES | dict(max_steps=2, architecture=architecture))))
    run = RunDirectory(tmp_path / 'run')
    line, *_ = [m for m in run.metrics() if 'loss' in m]
    assert ('mfu' in line) == logged
    if not logged: return
    batches = load_batches(run.data / 'train', run.recipe.data.max_tokens, run.config['pad_id'], run.recipe.seed, None)
    steps = [batches[i] for i in range(line['step'])]
    tokens = sum((tgt[:, 1:] != run.config['pad_id']).sum().item() for _, tgt in steps)
    flops = sum(train_flops(run.recipe.model, *src.shape, tgt.size(1) - 1) for src, tgt in steps)
    assert line['mfu'] / line['tokens_per_s'] == pytest.approx(flops / tokens / 1e12)

CHANGES = dict(N=1, d_model=32, d_ff=64, vocab_size=100, max_tokens=512, max_steps=12, warmup_steps=6, average_checkpoints=2, save_every='4 steps')

@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp('corpus')
    for lang in ('en', 'de'): (path / f'train.{lang}').write_text(number_lines(lang, 500))
    return path

def arguments(folder, out, changes=(), *extra):
    return ['--recipe', 'demo', *EN_DE, '--data_dir', folder, '--output_dir', out, *cli_args(CHANGES | dict(changes)), *extra]

def command(folder, out, changes=(), processes=1, *extra):
    launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', str(processes)] if processes > 1 else []
    return list(map(str, [sys.executable, *launch, '-m', 'annotated_transformer.training', *arguments(folder, out, changes, *extra)]))

ON_CPU = {'OMP_NUM_THREADS': '1', 'ACCELERATE_USE_CPU': 'true'}

def launch(folder, out, changes=(), processes=1, *extra, check=True):
    if processes == 1: result = run_forked('train', *arguments(folder, out, changes, *extra), env=ON_CPU)
    else: result = subprocess.run(command(folder, out, changes, processes, *extra), env=os.environ | ON_CPU, capture_output=True, text=True, timeout=300)
    return assert_success(result) if check else result

def small_run(folder, out, changes=(), resume=False, **options):
    "What `launch` does with one process, here: starting Python takes longer than these runs."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    training.train(get_recipe('demo', **CHANGES | dict(changes)), ('text', 'en', 'de'), out, folder, resume, **options)
    torch.set_num_threads(threads)

def weights(out): return safetensors.torch.load_file(Path(out) / 'model.safetensors')

@pytest.fixture(scope='module')
def whole(folder):
    small_run(folder, folder / 'whole')
    return weights(folder / 'whole')

@pytest.mark.parametrize('processes, accumulate', [(1, 4), pytest.param(2, 2, marks=pytest.mark.nightly)])      # exact in float64 above
def test_shared_update(folder, whole, processes, accumulate):
    "However an update is shared, twelve of them give the same weights: float32, and Adam divides by small numbers."
    out = folder / f'shared-{processes}'
    launch(folder, out, dict(gradient_accumulation_steps=accumulate), processes)
    assert_close(weights(out), whole, rtol=1e-3, atol=1e-4)

ONE_UPDATE = """
import sys, torch
from accelerate import Accelerator
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import Seq2SeqModel
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.training.train_step import ModelWithLoss, train_step
class Pair(Seq2SeqModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed, self.out = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)
        self.read, self.write = (torch.nn.GRU(8, 8, batch_first=True) for _ in range(2))
    def forward(self, src, tgt): return self.out(self.write(self.embed(tgt), self.read(self.embed(src))[1])[0])
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = dict(transformer=Transformer, recurrent=Pair)[sys.argv[3]](TransformerConfig(20, N=1, d_model=16, d_ff=32, h=2, P_drop=0.)).double()
model, optimizer = accelerator.prepare(ModelWithLoss(model), torch.optim.SGD(model.parameters(), lr=.1))
src = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0], [9, 3, 0, 0]])
tgt = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 9, 9, 3, 0]])
for _ in range(5): train_step(model, optimizer, src, tgt, accelerator, gradient_accumulation_steps=int(sys.argv[2]))
if accelerator.is_main_process: torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
"""

@pytest.mark.parametrize('architecture', ['transformer', pytest.param('recurrent', marks=pytest.mark.nightly)])
def test_gradients_of_shared_updates(architecture, tmp_path):
    "Five steps of gradient descent in float64, with unequal shares: Adam would hide a wrong factor, this does not."
    (tmp_path / 'script.py').write_text(ONE_UPDATE)
    def after(processes, accumulate):
        args = [tmp_path / 'script.py', out := tmp_path / f'{processes}-{accumulate}.pt', accumulate, architecture]
        if processes == 1: in_fresh_process(run_script, *map(str, args))
        else: subprocess.run(list(map(str, [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', processes, *args])),
                             check=True, capture_output=True, timeout=300, env=os.environ | ON_CPU)
        return torch.load(out, weights_only=True)
    one = after(1, 1)
    for shared in (1, 4), (2, 2): assert_close(after(*shared), one, rtol=0, atol=1e-9)

def start(folder, out, changes=(), processes=1, *extra):
    "The same as `launch`, in the background, as a process group of its own."
    if processes == 1: return Command('train', *arguments(folder, out, changes, *extra), env=ON_CPU)
    return subprocess.Popen(command(folder, out, changes, processes, *extra), env=os.environ | ON_CPU, stderr=subprocess.PIPE, text=True, start_new_session=True)

def wait_for(path, run):
    while not path.exists() and run.poll() is None: time.sleep(.01)

@pytest.mark.parametrize('processes', [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_terminated(folder, whole, processes):
    "SIGTERM ends a run after its update, with a checkpoint and without an error; --resume ends where the whole run ended."
    out = folder / f'terminated-{processes}'
    run = start(folder, out, dict(max_steps=100000), processes)
    wait_for(out / 'checkpoints', run)
    run.send_signal(signal.SIGTERM)
    message = run.communicate(timeout=100)[1]
    assert 'a checkpoint was saved, continue with --resume' in message
    done = int(RunDirectory(out).checkpoints('*')[-1].name[-8:])
    if processes == 2: return                               # what it resumes to, two killed processes show below
    assert run.returncode == 0 and 'Traceback' not in message
    small_run(folder, out, dict(max_steps=done + 10), resume=True)
    small_run(folder, folder / 'not-terminated', dict(max_steps=done + 10))
    assert_close(weights(out), weights(folder / 'not-terminated'), rtol=0, atol=0)

@pytest.mark.parametrize('processes, kills', [(1, 1), pytest.param(1, 4, marks=pytest.mark.nightly), pytest.param(2, 2, marks=pytest.mark.nightly)])
def test_killed(folder, processes, kills):
    "SIGKILL at random moments, again and again: the weights end bit for bit where an undisturbed run ends, with dropout, over several epochs."
    changes, rng = dict(max_steps=150, average_checkpoints=3, P_drop=0.1, save_every='7 steps'), random.Random(processes)
    out, killed = folder / f'killed-{processes}-{kills}', 0
    while killed < kills:
        run = start(folder, out, changes, processes, '--resume')
        wait_for(out / 'metrics.jsonl', run)
        time.sleep(rng.uniform(0, 1))
        if run.poll() is not None: break
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        killed += 1
    assert killed > 0
    launch(folder, out, changes, processes, '--resume')
    if processes == 1: small_run(folder, folder / 'undisturbed-1', changes)
    else: launch(folder, folder / 'undisturbed-2', changes, processes)
    for name in ('model.safetensors', 'best.safetensors'):
        assert (out / name).read_bytes() == (folder / f'undisturbed-{processes}' / name).read_bytes(), name

def workers(out):
    "Processes whose command line names this run."
    found = []
    for p in Path('/proc').glob('[0-9]*/cmdline'):
        try: line = p.read_bytes().decode().split('\0')
        except OSError: continue
        if str(out) in line: found.append(int(p.parent.name))
    return found

@pytest.mark.nightly
@pytest.mark.skipif(not Path('/proc').exists(), reason='looks for processes in /proc')
def test_launcher_killed(folder):
    "Only the launcher is killed: its workers say so, end, and let go of the run, which is continued to the same bytes."
    changes, out = dict(max_steps=150, average_checkpoints=3, P_drop=0.1, save_every='7 steps'), folder / 'orphaned'
    run = start(folder, out, changes | dict(max_steps=100000), 2)
    wait_for(out / 'checkpoints', run)
    os.kill(run.pid, signal.SIGKILL)
    said = run.communicate(timeout=30)[1]                # until the last worker lets go of the pipe
    assert 'the launcher of this process has exited: relaunch with --resume' in said and not workers(out)
    done = int(RunDirectory(out).checkpoints('*')[-1].name[-8:])
    changes |= dict(max_steps=done + 20)
    launch(folder, out, changes, 2, '--resume')
    launch(folder, folder / 'not-orphaned', changes, 2)
    assert (out / 'model.safetensors').read_bytes() == (folder / 'not-orphaned' / 'model.safetensors').read_bytes()

def test_other_number_of_processes(folder, whole):
    "Begun by one process, finished by two: said aloud, and the same up to rounding (no dropout here)."
    out = folder / 'handed-over'
    small_run(folder, out, dict(max_steps=8))
    result = launch(folder, out, {}, 2, '--resume')
    assert 'step-00000008 was written by 1 processes and is resumed by 2' in result.stdout
    assert_close(weights(out), whole, rtol=1e-3, atol=1e-4)

def test_disk_full(folder, whole):
    "The disk is full while a checkpoint is written: the file is named, earlier ones are untouched, and the run goes on once there is room."
    out = folder / 'full'
    small_run(folder, out, dict(max_steps=4))
    result = run_forked('train', *arguments(folder, out, {}, '--resume'), begin=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2 ** 16, 2 ** 16)))
    assert result.returncode == 1 and 'step-00000008 could not be written' in result.stderr and 'check free space' in result.stderr, result.stderr
    assert 'Traceback' not in result.stderr and [p.name for p in (out / 'checkpoints').iterdir()] == ['step-00000004']
    small_run(folder, out, resume=True)
    assert_close(weights(out), whole, rtol=0, atol=0)

DAMAGE = {'cut off': lambda data: data[:-100], 'one bit': lambda data: data[:(i := len(data) // 2)] + bytes([data[i] ^ 1]) + data[i + 1:], 'emptied': lambda data: b''}

@pytest.mark.parametrize('name, damage', [('model.safetensors', 'one bit'), *(pytest.param(name, damage, marks=pytest.mark.nightly)
    for name in ('model.safetensors', 'training_state.pt', 'SHA256SUMS') for damage in DAMAGE if (name, damage) != ('model.safetensors', 'one bit'))])
def test_damaged_checkpoint(folder, whole, name, damage, tmp_path):
    "Cut off, one bit changed, emptied: the file is named and nothing is loaded; when asked, the checkpoint before it is used."
    shutil.copytree(folder / 'whole', tmp_path / 'run')
    path = tmp_path / 'run' / 'checkpoints' / 'step-00000012' / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(ValueError, match='step-00000012.*is corrupt or missing.*skip_corrupt'): RunDirectory(tmp_path / 'run').newest_checkpoint()
    assert RunDirectory(tmp_path / 'run').newest_checkpoint(skip_corrupt=True).name == 'step-00000008'

def test_damaged_checkpoint_is_trained_again(folder, whole, tmp_path):
    out = folder / 'damaged'
    small_run(folder, out)
    (out / 'checkpoints' / 'step-00000012' / 'training_state.pt').write_bytes(b'')
    refused = launch(folder, out, {}, 1, '--resume', check=False)
    assert refused.returncode == 1 and 'step-00000012/training_state.pt is corrupt' in refused.stderr and 'Traceback' not in refused.stderr
    small_run(folder, out, resume=True, skip_corrupt=True)
    assert_close(weights(out), whole, rtol=0, atol=0)

def test_loss_is_not_a_number(folder):
    "The run stops and names update and batch; with two processes, too, none is left waiting."
    for processes in 1, 2:
        results = run_ranks(processes, 'train', *arguments(folder, folder / f'nan-{processes}', dict(peak_lr=1e30, max_steps=50, save_every='50 steps')))
        said = ''.join(r.stderr for r in results)
        assert {r.returncode for r in results} == {1} and said.count('error: the loss of step') == 1 and 'epoch 1' in said
        assert not RunDirectory(folder / f'nan-{processes}').checkpoints('*')

def test_changed_corpus(folder, whole, tmp_path):
    "One letter of the corpus changed: the run is not continued, and a new one does not take the old pieces."
    for f in folder.glob('train.*'): shutil.copy(f, tmp_path)
    small_run(tmp_path, tmp_path / 'runs' / 'a', dict(max_steps=4))
    (tmp_path / 'train.de').write_text((tmp_path / 'train.de').read_text().replace('eins', 'Eins', 1))
    refused = run_ranks(2, 'train', *arguments(tmp_path, tmp_path / 'runs' / 'a', {}, '--resume'))
    assert {r.returncode for r in refused} == {1} and ''.join(r.stderr for r in refused).count('has changed since') == 1
    small_run(tmp_path, tmp_path / 'runs' / 'b', dict(max_steps=4))
    assert len([p for p in (tmp_path / 'runs' / '.data').iterdir() if p.is_dir()]) == 2

def test_two_runs_in_one_folder(folder):
    run = start(folder, folder / 'shared-folder', dict(max_steps=100000))
    wait_for(folder / 'shared-folder' / 'metrics.jsonl', run)
    refused = launch(folder, folder / 'shared-folder', {}, 1, '--resume', check=False)
    run.kill(); run.wait()
    assert refused.returncode == 1 and 'in use by another run' in refused.stderr and 'Traceback' not in refused.stderr

def test_configurations(folder, whole):
    "accelerate understands every file in configs/; launched with the one for the CPU, a run ends where it does without."
    configs = ROOT / 'configs'
    for path in configs.glob('*.yaml'): assert load_config_from_file(str(path)).compute_environment == 'LOCAL_MACHINE'
    args = command(folder, folder / 'launched')
    launch = [sys.executable, '-m', 'accelerate.commands.accelerate_cli', 'launch', '--config_file', str(configs / 'cpu.yaml')]
    subprocess.run([*launch, *args[1:]], check=True, capture_output=True, timeout=300, env=os.environ | {'OMP_NUM_THREADS': '1'})
    assert_close(weights(folder / 'launched'), whole, rtol=0, atol=0)

@pytest.mark.parametrize('name, value', [('ACCELERATE_MIXED_PRECISION', 'bf16'), pytest.param('ACCELERATE_DYNAMO_BACKEND', 'eager', marks=pytest.mark.nightly)])
def test_accelerate_options(folder, whole, name, value):
    "bfloat16 and torch.compile as `accelerate launch` sets them: the weights stay float32 under their own names and are resumed."
    out = folder / value
    for steps in 8, 12: assert_success(run_forked('train', *arguments(folder, out, dict(max_steps=steps), '--resume'), env={'ACCELERATE_DYNAMO_USE_DYNAMIC': 'true', name: value}))
    assert_close(weights(out), whole, rtol=.05, atol=.05)
    assert {w.dtype for w in weights(out).values()} == {torch.float32}

@pytest.mark.nightly
def test_every_process_speaks(folder):
    "Several processes that cannot find each other, and one that is alone: each says so, with its number."
    env = os.environ | {'OMP_NUM_THREADS': '1', 'WORLD_SIZE': '2', 'RANK': '1', 'LOCAL_RANK': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '1', 'TORCHELASTIC_USE_AGENT_STORE': 'True'}
    alone = subprocess.run(command(folder, folder / 'alone'), env=env, capture_output=True, text=True, timeout=100)
    assert alone.returncode == 1 and 'error in process 1 of 2: the launcher of this process cannot be reached' in alone.stderr and 'Traceback' not in alone.stderr
    if torch.cuda.is_available(): return
    config = ROOT / 'configs' / '8gpu.yaml'
    launch = [sys.executable, '-m', 'accelerate.commands.accelerate_cli', 'launch', '--config_file', config, '--num_processes', '2', *command(folder, folder / 'alone')[1:]]
    result = subprocess.run(list(map(str, launch)), env=os.environ | {'OMP_NUM_THREADS': '1'}, capture_output=True, text=True, timeout=100)
    assert 'error: 2 processes were launched, but the world size is 1, as no GPU was found' in result.stderr

def test_tracker(folder):
    small_run(folder, folder / 'tracked', report_to='tensorboard')
    assert list((folder / 'tracked').rglob('events.out.tfevents*'))
    refused = launch(folder, folder / 'tracked-2', {}, 1, '--report_to', 'nothing', check=False)
    assert refused.returncode == 1 and 'tensorboard' in refused.stderr and 'Traceback' not in refused.stderr

SHARDED = """
import sys, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from accelerate import Accelerator
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.checkpoint import load_checkpoint, save_checkpoint
from annotated_transformer.training.optimizer import adam
from annotated_transformer.training.train_step import ModelWithLoss, train_step
accelerator = Accelerator(cpu=True)
def make():
    model = ModelWithLoss(Transformer(TransformerConfig(20, N=1, d_model=16, d_ff=32, h=2, P_drop=0.)))
    if sys.argv[2] == 'sharded':                      # as accelerate does with configs/fsdp.yaml; on a CPU it does not
        mesh = init_device_mesh('cpu', (accelerator.num_processes,))
        for layer in [*model.model.encoder.layers, *model.model.decoder.layers]: fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.model.loss_chunk_size = 4               # of the 15 target tokens
    optimizer = adam(model)
    for group in optimizer.param_groups: group['lr'] = .01
    return model, optimizer
src = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0], [9, 3, 0, 0]])
tgt = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 9, 9, 3, 0]])
torch.manual_seed(0)
model, optimizer = make()
for _ in range(3): train_step(model, optimizer, src, tgt, accelerator)
save_checkpoint(sys.argv[1], 3, model, optimizer, accelerator, keep_last=9)
accelerator.wait_for_everyone()
torch.manual_seed(1)
model, optimizer = make()
assert load_checkpoint(RunDirectory(sys.argv[1]).checkpoints()[0], model, optimizer, accelerator) == 3
for _ in range(2): train_step(model, optimizer, src, tgt, accelerator)
save_checkpoint(sys.argv[1], 5, model, optimizer, accelerator, keep_last=9)
"""

@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(torch.cpu.Stream, 'record_event'), reason='this torch (2.6) cannot shard a model on CPUs')
def test_sharded_model(tmp_path):
    "A model spread over two processes: five Adam steps, saved whole and loaded in between, end where one process ends."
    (tmp_path / 'script.py').write_text(SHARDED)
    for kind, launch in dict(alone=[], sharded=['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '2']).items():
        subprocess.run([sys.executable, *launch, tmp_path / 'script.py', tmp_path / kind, kind], check=True, capture_output=True, timeout=100,
                       env=os.environ | {'OMP_NUM_THREADS': '1', 'ACCELERATE_USE_CPU': 'true'})
    for step in '00000003', '00000005':
        alone, sharded = (safetensors.torch.load_file(tmp_path / kind / 'checkpoints' / f'step-{step}' / 'model.safetensors') for kind in ('alone', 'sharded'))
        assert_close(sharded, alone, rtol=1e-4, atol=1e-5)

def test_interrupted_between_checkpoints(folder, monkeypatch):
    "Stopped after update 9 of 12, with checkpoints every 4: the last one averages those of 8 and 12, as if it had never stopped."
    recipe = get_recipe('demo', **CHANGES)
    training.train(recipe, ('text', 'en', 'de'), folder / 'here', folder)
    done = []
    def interrupting(*args, train_step=training.train_step):
        done.append(1)
        if len(done) == 9: signal.raise_signal(signal.SIGTERM)
        return train_step(*args)
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match='0'):
        patch.setattr(training, 'train_step', interrupting)
        training.train(recipe, ('text', 'en', 'de'), folder / 'between', folder)
    assert [p.name for p in RunDirectory(folder / 'between').checkpoints('*')] == ['step-00000004', 'step-00000008', 'interrupted-00000009']
    training.train(recipe, ('text', 'en', 'de'), folder / 'between', folder, resume=True)
    assert [p.name for p in RunDirectory(folder / 'between').checkpoints('*')] == ['step-00000008', 'step-00000012']
    assert_close(weights(folder / 'between'), weights(folder / 'here'), rtol=0, atol=0)

def test_second_run_is_refused(folder, whole):
    refused = launch(folder, folder / 'whole', check=False)
    assert refused.returncode == 1 and 'already holds a run' in refused.stderr and 'Traceback' not in refused.stderr
    assert_close(weights(folder / 'whole'), whole, rtol=0, atol=0)

@dataclass(frozen=True)
class PairConfig:
    vocab_size: int = 100
    d_model: int = 32
    max_len: int = 60
    eps_ls: float = .1

@register_architecture('test_pair')
class Pair(Seq2SeqModel):
    "A recurrent network reads the source, another writes the target."
    config_class = PairConfig
    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        V, d = config.vocab_size, config.d_model
        self.embed, self.out = torch.nn.Embedding(V, d), torch.nn.Linear(d, V)
        self.encoder, self.decoder = (torch.nn.GRU(d, d, batch_first=True) for _ in range(2))

    def forward(self, src, tgt): return self.out(self.decoder(self.embed(tgt), self.encoder(self.embed(src))[1])[0])

def pair_recipe(**changes):
    return with_overrides(replace(get_recipe('demo', **CHANGES), architecture='test_pair', model=PairConfig()), **changes)

def test_another_architecture_resumes_exactly(folder, tmp_path):
    "Trained at once and in two parts: the same weights."
    recipe = pair_recipe(lr_scheduler_type='constant_with_warmup', optimizer='adamw')
    for name, parts in dict(once=[12], parts=[8, 12]).items():
        for max_steps in parts: training.train(with_overrides(recipe, max_steps=max_steps), ('text', 'en', 'de'), tmp_path / name, folder, resume=True)
    assert_close(weights(tmp_path / 'parts'), weights(tmp_path / 'once'), rtol=0, atol=0)

@pytest.mark.parametrize('recipe, options, message', [
    (lambda: get_recipe('demo', **CHANGES, seed=1), {}, 'started with a different seed'),
    (pair_recipe, {}, r'architecture \(transformer → test_pair\)'),
    (pair_recipe, dict(model=Pair(PairConfig(eps_ls=0.))), 'recipe specifies')], ids=['seed', 'architecture', 'model'])
def test_a_run_is_not_resumed_as_another(folder, whole, recipe, options, message):
    "What differs is named."
    with pytest.raises(ValueError, match=message):
        training.train(recipe(), ('text', 'en', 'de'), folder / ('new' if options else 'whole'), folder, resume=not options, **options)
