"The streams of a command, and which errors it shows in one line."
import errno
import os
import sys

import pytest
import torch
from helpers import assert_user_error, run

from annotated_transformer.cli.evaluate import transformer_evaluate
from annotated_transformer.cli.main import _parse_args, _user_message
from annotated_transformer.cli.train import transformer_train
from annotated_transformer.utils.validation import NonFiniteError, UserError

ONE_LINE = [UserError('x=0'), NonFiniteError('loss'), FileNotFoundError(errno.ENOENT, 'none', 'f'), PermissionError('f'), IsADirectoryError('f'), NotADirectoryError('f'), FileExistsError('f'),
            OSError(errno.ENAMETOOLONG, 'long', 'f'), OSError(errno.ENOSPC, 'full', 'f'), OSError(errno.EDQUOT, 'full', 'f'), MemoryError(), torch.OutOfMemoryError('CUDA out of memory'),
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), RuntimeError('[gloo] Connection closed by peer')]
TRACEBACK = [ValueError('expected a tensor of two dimensions'), ValueError('out of memory'), ValueError('make room on the disk'), TypeError('Connection closed'), OSError('x'), OSError(errno.EIO, 'x', 'f'),
             RuntimeError('shape'), KeyError('N'), FloatingPointError('x'), ConnectionResetError('Broken pipe')]

@pytest.mark.parametrize('e', ONE_LINE + TRACEBACK, ids=repr)
def test_the_type_decides(e): assert bool(_user_message(e)) == (e in ONE_LINE)

def test_what_the_user_can_mend_is_one_line_and_nothing_else(tmp_path):
    "The same line in a module of the user's own: raised by PyTorch, by the package, and by the package when asked for more."
    (tmp_path / 'of_torch.py').write_text('import torch\ntorch.optim.SGD([], lr=1)')
    (tmp_path / 'of_the_user.py').write_text("from annotated_transformer.utils.validation import validate_fields\nvalidate_fields(dict(N=0), 'N', ge=1)")
    fails = lambda name, *more: run('translate', 'nowhere', '--import', name, *more, cwd=tmp_path)
    ours = fails('of_torch')
    assert ours.returncode == 1 and ours.stderr.startswith('Traceback') and 'ValueError: optimizer got an empty parameter list' in ours.stderr
    assert_user_error(fails('of_the_user'), 'error: N=0 must be at least 1')
    assert fails('of_the_user', '--debug').stderr.startswith('Traceback')


def test_closed_streams(own, tmp_path):
    "A closed stream is an error or nothing, and its number is never given to a file that a library then writes into."
    shell = lambda line: os.popen(f'{{ {sys.executable.rsplit("/", 1)[0]}/transformer_{line} ; }} 2>&1; echo $?').read().split('\n')
    assert 'error: standard input is closed: give --input FILE' in shell(f'translate {own} <&-')
    assert os.popen(f'echo seven | {sys.executable.rsplit("/", 1)[0]}/transformer_translate {own} 2>&1 >&-; true').read() == 'error: standard output is closed: redirect it to a file or /dev/null\n'
    assert shell(f'translate {own} --input /dev/null 2>&-')[-2] == '0'

@pytest.mark.parametrize('line, message', [
    ('a --batch_size 3', 'unknown option --batch_size: see --help'), ('a --num_beams 3', 'unknown option --num_beams: use --beam'),
    ('a --lenpen=1', 'unknown option --lenpen=1: use --alpha'), ('a b', 'unexpected argument b'), ('a --beem 3', 'did you mean --beam?')])
def test_suggested_options_are_those_of_the_command(line, message, capsys):
    with pytest.raises(SystemExit) as e: _parse_args(transformer_evaluate, line.split())
    assert e.value.code == 2 and message in capsys.readouterr().err

def test_batch_size_is_in_tokens(capsys):
    with pytest.raises(SystemExit): _parse_args(transformer_train, ['--per_device_train_batch_size', '64'])
    assert 'use --max_tokens (in tokens, not sentences)' in capsys.readouterr().err

def test_options_with_either_dash(monkeypatch):
    "Other versions of fastcore spell the options of a function with a dash."
    from annotated_transformer.cli import main
    plain = main.anno_parser
    def dashed(func, **kwargs):
        parser = plain(func, **kwargs)
        for action in parser._actions:
            for flag in action.option_strings:
                if '_' in flag: parser._option_string_actions[flag.replace('_', '-')] = parser._option_string_actions.pop(flag)
            action.option_strings = [flag.replace('_', '-') for flag in action.option_strings]
        return parser
    def brew(water_temp:int=90): pass            # degrees
    for make in plain, dashed:
        monkeypatch.setattr(main, 'anno_parser', make)
        for flag in '--water_temp', '--water-temp': assert main._parse_args(brew, [flag, '80']) == dict(water_temp=80)
