"The streams of a command, and which errors it shows in one line."
import errno
import os
import sys

import pytest
import torch
from helpers import assert_user_error
from processes import run_forked

from annotated_transformer.cli.main import _user_message
from annotated_transformer.utils.validation import NonFiniteError, UserError

ONE_LINE = [UserError('x=0'), NonFiniteError('loss'), FileNotFoundError(errno.ENOENT, 'none', 'f'), PermissionError('f'), IsADirectoryError('f'), NotADirectoryError('f'), FileExistsError('f'),
            OSError(errno.ENAMETOOLONG, 'long', 'f'), OSError(errno.ENOSPC, 'full', 'f'), OSError(errno.EDQUOT, 'full', 'f'), MemoryError(), torch.OutOfMemoryError('CUDA out of memory'), RuntimeError('HIP error: out of memory'), RuntimeError('MPS backend out of memory'), RuntimeError('CUDA failed with error out of memory'),
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), RuntimeError('[gloo] Connection closed by peer'),
            torch.distributed.DistNetworkError('sendBytes failed: Broken pipe'), RuntimeError('Symlink loop from a')]
TRACEBACK = [ValueError('expected a tensor of two dimensions'), ValueError('out of memory'), ValueError('make room on the disk'), TypeError('Connection closed'), OSError('x'), OSError(errno.EIO, 'x', 'f'),
             RuntimeError('shape'), RuntimeError('the table is out of memory order'), RuntimeError('Broken pipe'), torch.distributed.DistBackendError('invalid usage'), KeyError('N'), FloatingPointError('x'), ConnectionResetError('Broken pipe')]

@pytest.mark.parametrize('e', ONE_LINE + TRACEBACK, ids=repr)
def test_the_type_decides(e): assert bool(_user_message(e)) == (e in ONE_LINE)

def test_what_the_user_can_mend_is_one_line_and_nothing_else(tmp_path):
    "The same line in a module of the user's own: raised by PyTorch, by the package, and by the package when asked for more."
    (tmp_path / 'of_torch.py').write_text('import torch\ntorch.optim.SGD([], lr=1)')
    (tmp_path / 'of_the_user.py').write_text("from annotated_transformer.utils.validation import validate_fields\nvalidate_fields(dict(N=0), 'N', ge=1)")
    fails = lambda name, *more: run_forked('translate', 'nowhere', '--import', name, *more, cwd=tmp_path)
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
