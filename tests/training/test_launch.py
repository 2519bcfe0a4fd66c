"`accelerate launch -m` and torchrun are the command."
import re

import pytest
from helpers import SINGLE_THREAD_ENV, SMALL_OVERRIDES, last_line, cli_args, run_in_process, run_python

from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.distributed import _init_distributed

LAUNCHERS = {'accelerate launch': ['accelerate.commands.launch', '--cpu', '--num_processes', 2], 'torchrun': ['torch.distributed.run', '--standalone', '--nproc_per_node', 2]}

@pytest.mark.parametrize('launcher', ['accelerate launch', pytest.param('torchrun', marks=pytest.mark.nightly)])
def test_launched_training_logs_bleu_and_ends_like_the_command(launcher, tmp_path, capfd, monkeypatch):
    args = ['--recipe', 'demo', '--dataset', 'numbers', '--eval_bleu_samples', '20', *cli_args(SMALL_OVERRIDES)]
    monkeypatch.setitem(SINGLE_THREAD_ENV, 'ACCELERATE_USE_CPU', 'true')
    launched = run_python('-m', *LAUNCHERS[launcher], '-m', 'annotated_transformer.training', *args, '--output_dir', 'many', cwd=tmp_path)
    assert launched.returncode == 0, launched.stderr
    assert any('valid_bleu' in m for m in RunDirectory(tmp_path / 'many').metrics())
    monkeypatch.chdir(tmp_path)
    alone = run_in_process(capfd, 'train', *args, '--output_dir', 'one')
    assert any('valid_bleu' in m for m in RunDirectory(tmp_path / 'one').metrics())
    shape = lambda line: re.sub(r'\d+(\.\d+)?', '0', line).replace('many', 'one')
    lines = [line for line in launched.stderr.replace('\r', '\n').split('\n') if line.startswith('many: ') and ' steps, ' in line]
    assert [*map(shape, lines)] == [shape(last_line(alone.stderr))] and 'Next: transformer_translate one --input FILE' in last_line(alone.stderr)

def test_processes_keep_one_copy_of_the_gradients(tmp_path):
    assert _init_distributed(tmp_path)[0].ddp_handler.gradient_as_bucket_view
