"The commands as a user types them: bad input gets one line that says what is wrong, and nothing is lost."
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import EN_DE, ROOT, SMALL_OVERRIDES, cli_args, run_in_process, number_lines, run, write_files

from processes import run_forked

from annotated_transformer.data.number_names import number_speller

COMMANDS = [p.stem for p in sorted((ROOT / 'annotated_transformer/cli').glob('*.py')) if p.stem not in ('__init__', 'arguments', 'main', 'recipe_flags', 'streams')]

def test_help():
    result = run('train', '--help')
    assert result.returncode == 0 and '--data' in result.stdout

@pytest.mark.parametrize('name', COMMANDS)
def test_every_help(capfd, name):
    result = run_in_process(capfd, name, '--help')
    assert result.returncode == 0 and '--debug' in result.stdout

BAD = {
    'line counts':   (dict(train_en='a\nb\n', train_de='a\n'), {}, ['train.en has 2 lines', 'train.de has 1']),
    'missing file':  (dict(train_en='a\n'), {}, ['train.de']),
    'empty file':    (dict(train_en='', train_de='a\n'), {}, ['train.en is empty']),
    'not UTF-8':     (dict(train_en='a\n', train_de=b'a\n\xff\n'), {}, ['train.de, line 2']),
    'vocabulary':    (dict(train_en=number_lines('en'), train_de=number_lines('de')), dict(vocab_size=5000), ['vocab_size=5000', 'use at most']),
    'long sentence': (dict(train_en=number_lines('en'), train_de=number_lines('de')), dict(vocab_size=100, max_len=5, overlong='error'), ['max_len=5']),
    'heads':         (dict(train_en='a\n', train_de='a\n'), dict(h=3), ['h=3', 'set both d_k and d_v']),
}

@pytest.mark.parametrize('case', BAD)
def test_bad_training_input(capfd, case, tmp_path):
    files, changes, messages = BAD[case]
    result = run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', write_files(tmp_path / 'data', **files), '--output_dir', tmp_path / 'run', *cli_args(changes))
    assert result.returncode == 1 and 'Traceback' not in result.stderr
    assert all(m in result.stderr for m in messages), result.stderr

def test_unknown_recipe(capfd):
    result = run_in_process(capfd, 'train', '--recipe', 'huge')
    assert result.returncode == 1 and "unknown recipe 'huge'" in result.stderr and 'multi30k_tiny' in result.stderr

def test_both_spellings():
    "fastcore 1 calls an option --data_dir, fastcore 2 --data-dir: both are understood, whichever is installed."
    from annotated_transformer.cli.arguments import _parse_args
    from annotated_transformer.cli.train import transformer_train
    for option in ['--data_dir', 'x'], ['--data-dir', 'x'], ['--data-dir=x'], ['--data_dir=x']:
        assert _parse_args(transformer_train, option)['data_dir'] == 'x'

@pytest.mark.nightly
def test_ascii_terminal(trained):
    "What the terminal cannot show is written as escapes; translations are UTF-8 all the same."
    env = dict(PYTHONIOENCODING='ascii', PYTHONUTF8='0', LC_ALL='C', PYTHONCOERCECLOCALE='0')
    demo = run('demo', '--output_dir', trained.parent / 'ascii', *cli_args(SMALL_OVERRIDES | dict(max_steps=2)), env=env)
    assert demo.returncode == 0 and 'seven \\u2192 ' in demo.stdout, demo.stderr
    assert '\u00fcnf'.encode() in run('translate', trained, stdin=b'five\n', env=env).stdout

def test_line_by_line(trained):
    "Who writes one line and waits gets its translation: no block has to be full first."
    process = subprocess.Popen([Path(sys.executable).parent / 'transformer_translate', trained, '--beam', '1'], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for word in b'seven', b'nine':
        process.stdin.write(word + b'\n')
        assert process.stdout.readline().endswith(b'\n')           # hangs, and the test with it, if it waits for more
    process.stdin.close()
    assert process.wait() == 0

def test_debug(trained):
    "--debug shows where an error comes from."
    assert 'Traceback' in run_forked('translate', trained, '--beam', '0', '--debug').stderr
    assert 'Traceback' not in run_forked('translate', trained, '--beam', '0').stderr

@pytest.mark.parametrize('seconds', [2, *(pytest.param(s, marks=pytest.mark.nightly) for s in (.3, 1, 4))])
def test_interrupted_while_it_loads(trained, seconds):
    "Ctrl-C while PyTorch is loading, and after: one word."
    process = subprocess.Popen([Path(sys.executable).parent / 'transformer_translate', trained], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == 'interrupted\n' and process.returncode == 130

def test_one_line_out_for_one_line_in(trained):
    lines = ['seven', '', 'twenty-one', 'un\u0085known \u2028 \u00e9\U0001f600', ' ', 'nine']
    result = run('translate', trained, stdin='\n'.join(lines) + '\n')
    out = result.stdout.split('\n')
    assert len(out) == len(lines) + 1 and out[1] == '' and out[4] == ''

UNUSUAL_INPUT = {
    'a byte order mark':     (b'\xef\xbb\xbfseven\nseven\n', lambda out: out[0] == out[1]),
    'carriage returns':      (b'seven\r\nseven\nse\rven\n', lambda out: out[0] == out[1]),
    'bytes that are no text': (b'\xff\xfe\x80\nseven\n', lambda out: len(out[1])),
    'control characters':    (b'a\x00b\x07\x1b[31m\nse\x0bven\x0c\n\x1c\x1d\x85\nseven\n', lambda out: len(out[3])),
    'separators':            ('se\u2028ven\u2029\u0085\nseven\n'.encode(), lambda out: len(out[1])),
    'no end of line':        (b'seven\nseven', lambda out: out[0] == out[1]),
    'blank lines':           (b'\n\n \t\n\nseven\n\n', lambda out: out[4] and not any(out[:4] + out[5:])),
    'unknown characters':    ('\u4e03 \U0001f600 \u0434\u0430\nseven\n'.encode(), lambda out: len(out[1])),
    'nothing':               (b'', lambda out: out == []),
}

@pytest.mark.parametrize('case', UNUSUAL_INPUT)
def test_any_line(capfd, case, trained):
    "One line out for one line in, in order, whatever is in the lines."
    data, right = UNUSUAL_INPUT[case]
    result = run_in_process(capfd, 'translate', trained, '--beam', '1', stdin=data)
    out = result.stdout.split('\n')
    assert out.pop() == '' and len(out) == len(data.removesuffix(b'\n').split(b'\n') if data else [])
    assert not any(len(line.splitlines()) > 1 for line in out) and right(out), (out, result.stderr)

def test_long_lines(capfd, trained):
    "A line of more pieces than the model can take is translated in parts, or refused; its number is named."
    lines = ['seven', ' '.join(map(number_speller('en'), range(60))), 'nine', 'x' * 3000]
    split = run_in_process(capfd, 'translate', trained, '--beam', '1', stdin='\n'.join(lines) + '\n')
    assert len(split.stdout.splitlines()) == 4 and 'line 2 has more than max_len=60 tokens: translated in' in split.stderr and 'line 4' in split.stderr
    refused = run_in_process(capfd, 'translate', trained, '--overlong', 'error', stdin='\n'.join(lines) + '\n')
    assert refused.returncode == 1 and 'line 2 has more than max_len=60' in refused.stderr and 'Traceback' not in refused.stderr and not refused.stdout

@pytest.mark.nightly
def test_long_stream(trained):
    "Memory does not grow with the stream: 2,000 lines, 100,000 lines (nine of ten are blank, to save time)."
    script = """if True:
        import resource, runpy, sys
        sys.argv = sys.argv[1:]
        try: runpy.run_path(sys.argv[0], run_name='__main__')
        finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"""
    command = [sys.executable, '-c', script, Path(sys.executable).parent / 'transformer_translate', trained, '--beam', '1']
    peak = {}
    for n in 2_000, 100_000:
        lines = [number_speller('en')(i % 300) if i % 10 == 0 else '' for i in range(n)]
        result = subprocess.run(list(map(str, command)), input='\n'.join(lines) + '\n', capture_output=True, text=True, env=os.environ | {'OMP_NUM_THREADS': '1'})
        assert result.stdout.count('\n') == n, result.stderr
        peak[n] = int(result.stderr.split()[-1])                   # kB
    assert peak[100_000] < peak[2_000] + 20_000

def test_ctrl_c_leaves_complete_lines(trained):
    command = [Path(sys.executable).parent / 'transformer_translate', trained, '--beam', '1']
    process = subprocess.Popen(list(map(str, command)), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b'seven\n' * 3000); process.stdin.flush()
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130 and b'Traceback' not in err
    assert all(line == first for line in (first + out).splitlines(keepends=True))

def test_reader_that_stops(trained):
    "As in `transformer_translate … | head -n 1`."
    command = f'yes seven | head -n 5000 | {Path(sys.executable).parent}/transformer_translate {trained} --beam 1 | head -n 1'
    result = subprocess.run(command, shell=True, capture_output=True, text=True, env=os.environ | {'OMP_NUM_THREADS': '1'})
    assert result.stdout.count('\n') == 1 and result.stderr == ''

def test_other_engine(capfd, trained):
    "CTranslate2, greedy: the same translations; without an export, or after another training, it says what to do."
    lines = '\n'.join(map(number_speller('en'), range(200))) + '\n\n'
    missing = run_in_process(capfd, 'translate', trained, '--engine', 'ctranslate2', stdin=lines)
    assert missing.returncode == 1 and 'transformer_export' in missing.stderr and 'Traceback' not in missing.stderr
    assert 'ctranslate2: ' in run_in_process(capfd, 'export', trained).stdout
    ours, theirs = (run_in_process(capfd, 'translate', trained, '--beam', '1', '--engine', engine, stdin=lines).stdout.split('\n') for engine in ('pytorch', 'ctranslate2'))
    assert len(ours) == len(theirs) == 202 and sum(a == b for a, b in zip(ours, theirs)) >= 200
    assert "use one of pytorch, ctranslate2" in run_in_process(capfd, 'translate', trained, '--engine', 'onnx', stdin=lines).stderr
    assert "format='tflite' is unknown: use one of" in run_in_process(capfd, 'export', trained, '--format', 'tflite').stderr

def test_compare_two_systems(capfd, trained, tmp_path):
    run_in_process(capfd, 'evaluate', trained, '--beam', '1', '--output', tmp_path / 'greedy')
    shown = run_in_process(capfd, 'evaluate', trained, '--baseline', tmp_path / 'greedy').stdout
    assert f'sacreBLEU difference from {tmp_path}/greedy: ' in shown and 'p = ' in shown and '95 % interval: ' in shown and 'sentences/s: ' in shown
    (tmp_path / 'short').write_text('a\n')
    assert 'short has 1 lines' in run_in_process(capfd, 'evaluate', trained, '--baseline', tmp_path / 'short').stderr

def test_ensemble(capfd, trained):
    "A model with itself gives what it gives alone; models with different pieces are refused."
    lines = '\n'.join(map(number_speller('en'), range(50))) + '\n'
    assert run_in_process(capfd, 'translate', f'{trained},{trained}', stdin=lines).stdout == run_in_process(capfd, 'translate', trained, stdin=lines).stdout

def test_evaluate_and_average(capfd, trained, tmp_path):
    shown = run_in_process(capfd, 'evaluate', trained, '--beam', '1', '--output', tmp_path / 'hyp').stdout
    assert f"{(tmp_path / 'hyp').read_text().count(chr(10))} sentences" in shown
    assert 'chrF: ' in shown and 'signature: nrefs:1' in shown and 'exact match: ' in shown.splitlines()[-1]
    assert 'step-00000200' in run_in_process(capfd, 'average', trained, '--num_checkpoints', '1').stdout

def test_unequal_test_files(capfd, trained, tmp_path):
    files = write_files(tmp_path / 'test', a='one\ntwo\n', b='eins\n')
    result = run_in_process(capfd, 'evaluate', trained, '--src', files / 'a', '--ref', files / 'b')
    assert result.returncode == 1 and '2 lines' in result.stderr and 'has 1' in result.stderr

def test_missing_tokenizer(capfd, trained):
    (trained / 'tokenizer.model').rename(trained / 'moved')
    result = run_in_process(capfd, 'translate', trained, stdin='one\n')
    (trained / 'moved').rename(trained / 'tokenizer.model')
    assert result.returncode == 1 and 'tokenizer.model' in result.stderr and 'Traceback' not in result.stderr
