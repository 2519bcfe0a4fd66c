"What the tests of the commands share: a command in a process of its own, small files, and one small trained model."
import io, os, shlex, shutil, subprocess, sys
from importlib import import_module
from pathlib import Path
import pytest
from annotated_transformer.cli.main import call, homes
from annotated_transformer.data.number_names import namer

SMALL = "N=1 d_model=32 d_ff=64 vocab_size=100 tokens=512 steps=2 warmup_steps=2 average=1 save_every='2 steps'"
TRAINED = "N=1 d_model=64 d_ff=128 vocab_size=100 tokens=1024 steps=200 warmup_steps=60 average=1 max_len=60 save_every='200 steps'"

def changed(recipe, changes):
    "The settings of a small run with some others in their place."
    names = [word.partition('=')[0] for word in changes.split()]
    return ' '.join([shlex.quote(word) for word in shlex.split(recipe) if word.partition('=')[0] not in names] + [changes])

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

@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp('corpus'), train_en=names('en'), train_de=names('de'))
    result = run('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', folder, '--out', folder / 'run', '--set', TRAINED)
    assert result.returncode == 0, result.stderr
    return folder / 'run'

@pytest.fixture
def own(trained, tmp_path):
    "A copy of the trained run that may be spoilt."
    return shutil.copytree(trained, tmp_path / 'own', ignore=shutil.ignore_patterns('ctranslate2*'))

def refused(result, *messages):
    "One line that says all of this, no traceback, an exit status."
    assert result.returncode == 1 and 'Traceback' not in result.stderr, result.stderr
    line = result.stderr.replace('\r', '\n').strip().split('\n')[-1]
    assert line.startswith('error: ') and all(m in line for m in messages), result.stderr

def in_here(capfd, name, *args, stdin=''):
    "The same without a new process: loading PyTorch takes longer than these tests."
    function = getattr(import_module(f'annotated_transformer.{homes[name]}'), f'transformer_{name}')
    capfd.readouterr()
    status, old = 0, sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
    try: call(function, list(map(str, args)))
    except SystemExit as e: status = e.code
    finally: sys.stdin = old
    out, err = capfd.readouterr()
    return type('Result', (), dict(returncode=status, stdout=out, stderr=err))
