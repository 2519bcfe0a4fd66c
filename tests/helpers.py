"What the tests of the commands share: a command in a process of its own, small files, and one small trained model."
import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import safetensors.torch

from annotated_transformer.cli.main import _run_command
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.utils.io import _sha256_file

ROOT = Path(__file__).resolve().parents[1]
EN_DE = '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'de'
SINGLE_THREAD_ENV = dict(os.environ, OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1')
SMALL_OVERRIDES = dict(N=1, d_model=32, d_ff=64, vocab_size=100, max_tokens=512, max_steps=2, warmup_steps=2, average_checkpoints=1, save_every='2 steps')
TRAINED_OVERRIDES = dict(N=1, d_model=64, d_ff=128, vocab_size=100, max_tokens=1024, max_steps=200, warmup_steps=60, average_checkpoints=1, max_len=60, save_every='200 steps')

def cli_args(settings):
    "The options of a command for the fields of a recipe."
    return [word for name, value in settings.items() for word in (f'--{name}', 'null' if value is None else str(value))]

def run(name, *args, stdin='', cwd=None, env=None, timeout=300):
    "A command as the shell runs it."
    command = [Path(sys.executable).parent / f'transformer_{name}', *args]
    return subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=isinstance(stdin, str), timeout=timeout,
                          cwd=cwd, env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'} | (env or {}))

def write_files(folder, **files):
    "Files by name (`_` for the dot) and content, in a folder."
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items(): (folder / name.replace('_', '.')).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder

def number_lines(lang, n=300): return '\n'.join(map(number_speller(lang), range(n)))

def snapshot_dir(folder):
    "Every file below a folder and its bytes, to see that nothing was lost."
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob('*')) if p.is_file()}

def assert_user_error(result, *messages):
    "One line that says all of this, no traceback, an exit status."
    assert result.returncode in (1, 2) and 'Traceback' not in result.stderr, result.stderr
    line = result.stderr.replace('\r', '\n').strip().split('\n')[-1]
    assert line.startswith('error: ') and all(m in line for m in messages), result.stderr

def run_in_process(capfd, name, *args, stdin=''):
    "The same without a new process: loading PyTorch takes longer than these tests."
    function = getattr(import_module(f'annotated_transformer.cli.{name}'), f'transformer_{name}')
    capfd.readouterr()
    status, old = 0, sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
    try: _run_command(function, list(map(str, args)))
    except SystemExit as e: status = e.code
    finally: sys.stdin = old
    out, err = capfd.readouterr()
    return type('Result', (), dict(returncode=status, stdout=out, stderr=err))

def run_python(*args, cwd=None, stdin=''):
    "Python, as the shell starts it."
    return subprocess.run([sys.executable, *map(str, args)], cwd=cwd, env=SINGLE_THREAD_ENV, input=stdin, capture_output=True, text=True, timeout=300)

def last_line(stderr): return stderr.replace('\r', '\n').strip().split('\n')[-1]

def assert_success(result):
    assert result.returncode == 0, result.stderr
    return result

def edit_config(path, **values):
    config = json.loads(path.read_text())
    for k, v in values.items(): next((part for part in config.values() if isinstance(part, dict) and k in part), config)[k] = v
    path.write_text(json.dumps(config))

def corrupt_weights(path, transform, checksums=None):
    "Change the tensors of a file as `transform` says, and the list of digests beside it."
    with safetensors.safe_open(path, 'pt') as file: metadata = file.metadata()
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file(transform(weights) or weights, path, metadata)
    if checksums: checksums.write_text(''.join(f'{_sha256_file(path.parent / n)}  {n}\n' for n in ('model.safetensors', 'training_state.pt')))

def train_undertrained_run(capfd, folder, positions):
    "A run of few steps, whose translations do not end, with few positions."
    write_files(folder, train_en=number_lines('en'), train_de=number_lines('de'))
    settings = SMALL_OVERRIDES | dict(max_steps=3, max_len=20, positions=positions, save_every='3 steps')
    assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', folder, '--output_dir', folder / 'run', *cli_args(settings)))
    return folder / 'run'
