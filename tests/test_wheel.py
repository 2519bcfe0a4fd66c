"The wheel, installed outside of the clone: what is in it, the demo, the launch, all commands."
import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
from check import clean_checkout
from helpers import SINGLE_THREAD_ENV, ROOT, SMALL_OVERRIDES, cli_args, assert_success


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel')
    with clean_checkout(ROOT) as copy:
        result = subprocess.run([sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w', folder, copy], capture_output=True, text=True)
    if result.returncode and 'No matching distribution' in result.stderr: pytest.skip('no package index for setuptools')
    path, = assert_success(result) and folder.glob('*.whl')
    return path

@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp('site')
    assert_success(subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--no-index', '--target', folder, wheel], capture_output=True, text=True))
    return folder

def run(installed, *args, cwd):
    return subprocess.run(list(map(str, args)), cwd=cwd, env=SINGLE_THREAD_ENV | {'PYTHONPATH': str(installed)}, capture_output=True, text=True, timeout=300)

def test_what_is_in_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [p for p in (ROOT / 'annotated_transformer').rglob('*') if p.is_file() and p.suffix != '.pyc' and p.relative_to(ROOT).as_posix() not in names]
    assert not missing and 'annotated_transformer/configs/8gpu.yaml' in names
    assert not [n for n in names if n.startswith(('tests/', 'nbs/', 'tools/', 'experiments/', 'benchmarks/'))]

def test_demo_and_launch(installed, tmp_path):
    home = assert_success(run(installed, sys.executable, '-c', 'import annotated_transformer as at; print(at.__file__)', cwd=tmp_path)).stdout
    assert Path(home.strip()).is_relative_to(installed)
    demo = assert_success(run(installed, installed / 'bin/transformer_demo', *cli_args(SMALL_OVERRIDES), cwd=tmp_path))
    assert demo.stdout.splitlines()[-1].startswith('exact match: ') and len([*(tmp_path / 'runs/demo').glob('*.png')]) == 2
    assert_success(run(installed, sys.executable, '-m', 'accelerate.commands.launch', '--cpu', '--num_processes', 1, '-m', 'annotated_transformer.training', '--recipe', 'demo',
            *cli_args(SMALL_OVERRIDES), '--output_dir', 'launched', cwd=tmp_path))
    assert (tmp_path / 'launched/model.safetensors').is_file()

def test_course(installed, tmp_path):
    assert_success(run(installed, installed / 'bin/transformer_course', 'new', 'mine', cwd=tmp_path))
    result = run(installed, installed / 'bin/transformer_course', 'check', 'mine', 'masks', cwd=tmp_path)
    assert result.returncode == 1 and result.stdout.startswith('masks         open: subsequent_mask has no code yet')

def test_every_command_is_there(installed, tmp_path):
    ini = ConfigParser(delimiters=['='])
    ini.read(ROOT / 'settings.ini', encoding='utf-8')
    commands = [line.split('=')[0].strip() for line in ini['DEFAULT']['console_scripts'].split('\n')]
    assert sorted(p.name for p in (installed / 'bin').iterdir()) == sorted(commands) and os.access(installed / 'bin' / commands[0], os.X_OK)
