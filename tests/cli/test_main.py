"The streams of a command."
import os
import sys


def test_closed_streams(own, tmp_path):
    "A closed stream is an error or nothing, and its number is never given to a file that a library then writes into."
    shell = lambda line: os.popen(f'{{ {sys.executable.rsplit("/", 1)[0]}/transformer_{line} ; }} 2>&1; echo $?').read().split('\n')
    assert 'error: standard input is closed: give --input FILE' in shell(f'translate {own} <&-')
    assert os.popen(f'echo seven | {sys.executable.rsplit("/", 1)[0]}/transformer_translate {own} 2>&1 >&-; true').read() == 'error: standard output is closed: send it to a file, or to /dev/null\n'
    assert shell(f'translate {own} --input /dev/null 2>&-')[-2] == '0'
