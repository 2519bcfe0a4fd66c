"What the tests of the commands share: a command in a process of its own, small files, and one small trained model."
import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import safetensors.torch

from annotated_transformer.cli.main import call
from annotated_transformer.data.number_names import namer
from annotated_transformer.utils.io import digest

ROOT = Path(__file__).resolve().parents[1]
EN_DE = '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'de'
ONE = dict(os.environ, OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1')
SMALL = dict(N=1, d_model=32, d_ff=64, vocab_size=100, max_tokens=512, max_steps=2, warmup_steps=2, average_checkpoints=1, save_every='2 steps')
TRAINED = dict(N=1, d_model=64, d_ff=128, vocab_size=100, max_tokens=1024, max_steps=200, warmup_steps=60, average_checkpoints=1, max_len=60, save_every='200 steps')

def flags(settings):
    "The options of a command for the fields of a recipe."
    return [word for name, value in settings.items() for word in (f'--{name}', 'null' if value is None else str(value))]

def run(name, *args, stdin='', cwd=None, env=None, timeout=300):
    "A command as the shell runs it."
    command = [Path(sys.executable).parent / f'transformer_{name}', *args]
    return subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=isinstance(stdin, str), timeout=timeout,
                          cwd=cwd, env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'} | (env or {}))

def write(folder, **files):
    "Files by name (`_` for the dot) and content, in a folder."
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items(): (folder / name.replace('_', '.')).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder

def names(lang, n=300): return '\n'.join(map(namer(lang), range(n)))

def content(folder):
    "Every file below a folder and its bytes, to see that nothing was lost."
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob('*')) if p.is_file()}

def refused(result, *messages):
    "One line that says all of this, no traceback, an exit status."
    assert result.returncode in (1, 2) and 'Traceback' not in result.stderr, result.stderr
    line = result.stderr.replace('\r', '\n').strip().split('\n')[-1]
    assert line.startswith('error: ') and all(m in line for m in messages), result.stderr

def in_here(capfd, name, *args, stdin=''):
    "The same without a new process: loading PyTorch takes longer than these tests."
    function = getattr(import_module(f'annotated_transformer.cli.{name}'), f'transformer_{name}')
    capfd.readouterr()
    status, old = 0, sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
    try: call(function, list(map(str, args)))
    except SystemExit as e: status = e.code
    finally: sys.stdin = old
    out, err = capfd.readouterr()
    return type('Result', (), dict(returncode=status, stdout=out, stderr=err))

def python(*args, cwd=None, stdin=''):
    "Python, as the shell starts it."
    return subprocess.run([sys.executable, *map(str, args)], cwd=cwd, env=ONE, input=stdin, capture_output=True, text=True, timeout=300)

def closing(stderr): return stderr.replace('\r', '\n').strip().split('\n')[-1]

def ran(result):
    assert result.returncode == 0, result.stderr
    return result

def change(path, **values):
    config = json.loads(path.read_text())
    for k, v in values.items(): next((part for part in config.values() if isinstance(part, dict) and k in part), config)[k] = v
    path.write_text(json.dumps(config))

def spoil(path, f, digests=None):
    "Change the tensors of a file as `f` says, and the list of digests beside it."
    with safetensors.safe_open(path, 'pt') as file: metadata = file.metadata()
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file(f(weights) or weights, path, metadata)
    if digests: digests.write_text(''.join(f'{digest(path.parent / n)}  {n}\n' for n in ('model.safetensors', 'training.pt')))

def endless(capfd, folder, positions):
    "A run of few steps, whose translations do not end, with few positions."
    write(folder, train_en=names('en'), train_de=names('de'))
    settings = SMALL | dict(max_steps=3, max_len=20, positions=positions, save_every='3 steps')
    ran(in_here(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', folder, '--out', folder / 'run', *flags(settings)))
    return folder / 'run'
