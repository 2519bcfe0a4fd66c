"`accelerate launch -m` and torchrun are the command."
import re

import pytest
from helpers import ONE, SMALL, closing, flags, in_here, python

from annotated_transformer.run_directory import RunDirectory

LAUNCHERS = {'accelerate launch': ['accelerate.commands.launch', '--cpu', '--num_processes', 2], 'torchrun': ['torch.distributed.run', '--standalone', '--nproc_per_node', 2]}

@pytest.mark.parametrize('launcher', LAUNCHERS)
def test_launched_training_logs_bleu_and_ends_like_the_command(launcher, tmp_path, capfd, monkeypatch):
    args = ['--recipe', 'demo', '--dataset', 'numbers', '--bleu', '20', *flags(SMALL)]
    monkeypatch.setitem(ONE, 'ACCELERATE_USE_CPU', 'true')
    launched = python('-m', *LAUNCHERS[launcher], '-m', 'annotated_transformer.training', *args, '--out', 'many', cwd=tmp_path)
    assert launched.returncode == 0, launched.stderr
    assert any('valid_bleu' in m for m in RunDirectory(tmp_path / 'many').metrics())
    monkeypatch.chdir(tmp_path)
    alone = in_here(capfd, 'train', *args, '--out', 'one')
    assert any('valid_bleu' in m for m in RunDirectory(tmp_path / 'one').metrics())
    shape = lambda line: re.sub(r'\d+(\.\d+)?', '0', line).replace('many', 'one')
    lines = [line for line in launched.stderr.replace('\r', '\n').split('\n') if line.startswith('many: ') and 'updates' in line]
    assert [*map(shape, lines)] == [shape(closing(alone.stderr))] and 'Now: transformer_translate one --input FILE' in closing(alone.stderr)
