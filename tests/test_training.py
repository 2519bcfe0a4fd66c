"Several processes share an update; a killed or interrupted run goes on as if nothing had happened."
import os, signal, subprocess, sys, time
from pathlib import Path
import pytest, safetensors.torch, torch
from torch.testing import assert_close
from annotated_transformer import training
from annotated_transformer.corpora import namer

CHANGES = "N=1 d_model=32 d_ff=64 vocab_size=100 tokens=512 steps=12 warmup_steps=6 average=2 save_every='4 steps'"

@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp('corpus')
    for lang in ('en', 'de'): (path / f'train.{lang}').write_text('\n'.join(map(namer(lang), range(500))))
    return path

def command(folder, out, changes='', processes=1, *extra):
    launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', str(processes)] if processes > 1 else []
    args = ['--corpus', 'text_en_de', '--data_dir', folder, '--out', out, '--set', f'{CHANGES} {changes}', *extra]
    return list(map(str, [sys.executable, *launch, '-m', 'annotated_transformer.training', *args]))

def train(*args, check=True):
    env = os.environ | {'OMP_NUM_THREADS': '1', 'ACCELERATE_USE_CPU': 'true'}
    return subprocess.run(command(*args), env=env, capture_output=True, text=True, check=check, timeout=300)

def weights(out): return safetensors.torch.load_file(Path(out) / 'model.safetensors')

@pytest.fixture(scope='module')
def whole(folder):
    train(folder, folder / 'whole')
    return weights(folder / 'whole')

@pytest.mark.parametrize('processes, accumulate', [(1, 4), (2, 2)])
def test_shared_update(folder, whole, processes, accumulate):
    "However an update is shared, twelve of them give the same weights: float32, and Adam divides by small numbers."
    out = folder / f'shared-{processes}'
    train(folder, out, f'accumulate={accumulate}', processes)
    assert_close(weights(out), whole, rtol=1e-3, atol=1e-4)

ONE_UPDATE = """
import sys, torch
from accelerate import Accelerator
from annotated_transformer.config import TransformerConfig
from annotated_transformer.training import update
from annotated_transformer.transformer import Transformer
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = Transformer(TransformerConfig(20, N=1, d_model=16, d_ff=32, h=2, P_drop=0.)).double()
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=.1))
src = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0], [9, 3, 0, 0]])
tgt = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 9, 9, 3, 0]])
for _ in range(5): update(model, optimizer, src, tgt, accelerator, accumulate=int(sys.argv[2]))
if accelerator.is_main_process: torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
"""

def test_gradients_of_shared_updates(tmp_path):
    "Five steps of gradient descent in float64, with unequal shares: Adam would hide a wrong factor, this does not."
    (tmp_path / 'script.py').write_text(ONE_UPDATE)
    def after(processes, accumulate):
        launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', str(processes)] if processes > 1 else []
        out = tmp_path / f'{processes}-{accumulate}.pt'
        subprocess.run([sys.executable, *launch, tmp_path / 'script.py', out, str(accumulate)], check=True, capture_output=True,
                       timeout=300, env=os.environ | {'OMP_NUM_THREADS': '1', 'ACCELERATE_USE_CPU': 'true'})
        return torch.load(out, weights_only=True)
    one = after(1, 1)
    for shared in (1, 4), (2, 2): assert_close(after(*shared), one, rtol=0, atol=1e-9)

def test_interrupted(folder, whole):
    "SIGTERM ends a run after its update, with a checkpoint; --resume ends where the whole run ended."
    out = folder / 'interrupted'
    run = subprocess.Popen(command(folder, out), stderr=subprocess.PIPE, text=True, env=os.environ | {'OMP_NUM_THREADS': '1'})
    while not (out / 'metrics.jsonl').exists() and run.poll() is None: time.sleep(.02)
    run.send_signal(signal.SIGTERM)
    message = run.communicate()[1]
    if run.returncode: assert 'continue with --resume' in message and (out / 'checkpoints').exists()
    train(folder, out, '', 1, '--resume')
    assert_close(weights(out), whole, rtol=0, atol=0)

def test_interrupted_between_checkpoints(folder, monkeypatch):
    "Stopped after update 9 of 12, with checkpoints every 4: the last one averages those of 8 and 12, as if it had never stopped."
    recipe = training.get_recipe('demo', CHANGES)
    training.train(recipe, 'text_en_de', folder / 'here', folder)
    def interrupting(self, position, read=training.Batches.__getitem__):
        if position == 8: signal.raise_signal(signal.SIGTERM)
        return read(self, position)
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match='interrupted after update 9'):
        patch.setattr(training.Batches, '__getitem__', interrupting)
        training.train(recipe, 'text_en_de', folder / 'between', folder)
    assert [p.name for p in training.checkpoints(folder / 'between', '*')] == ['step-00000004', 'step-00000008', 'interrupted-00000009']
    training.train(recipe, 'text_en_de', folder / 'between', folder, resume=True)
    assert [p.name for p in training.checkpoints(folder / 'between', '*')] == ['step-00000008', 'step-00000012']
    assert_close(weights(folder / 'between'), weights(folder / 'here'), rtol=0, atol=0)

def test_second_run_is_refused(folder, whole):
    refused = train(folder, folder / 'whole', check=False)
    assert refused.returncode == 1 and 'already holds a run' in refused.stderr and 'Traceback' not in refused.stderr
    assert_close(weights(folder / 'whole'), whole, rtol=0, atol=0)
