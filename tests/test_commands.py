"The commands as a user types them: bad input gets one line that says what is wrong, and nothing is lost."
import os, subprocess, sys
from pathlib import Path
import pytest
from annotated_transformer.corpora import namer

SMALL = "N=1 d_model=32 d_ff=64 vocab_size=100 tokens=512 steps=2 warmup_steps=2 average=1 save_every='2 steps'"

def run(name, *args, stdin=''):
    command = [Path(sys.executable).parent / name, *args]
    return subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, env=os.environ | {'OMP_NUM_THREADS': '1'})

def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items(): (folder / name.replace('_', '.')).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder

def names(lang, n=300): return '\n'.join(map(namer(lang), range(n)))

@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp('corpus'), train_en=names('en'), train_de=names('de'))
    result = run('transformer_train', '--corpus', 'text_en_de', '--data_dir', folder, '--out', folder / 'run', '--set', SMALL)
    assert result.returncode == 0, result.stderr
    return folder / 'run'

@pytest.mark.parametrize('name', ['train', 'translate', 'evaluate', 'average', 'demo'])
def test_help(name):
    result = run(f'transformer_{name}', '--help')
    assert result.returncode == 0 and '--' in result.stdout

BAD = {
    'line counts':   (dict(train_en='a\nb\n', train_de='a\n'), '', ['train.en has 2 lines', 'train.de has 1']),
    'missing file':  (dict(train_en='a\n'), '', ['train.de']),
    'empty file':    (dict(train_en='', train_de='a\n'), '', ['train.en is empty']),
    'not UTF-8':     (dict(train_en='a\n', train_de=b'a\n\xff\n'), '', ['train.de, line 2']),
    'vocabulary':    (dict(train_en=names('en'), train_de=names('de')), 'vocab_size=5000', ['vocab_size=5000', 'use at most']),
    'long sentence': (dict(train_en=names('en'), train_de=names('de')), 'vocab_size=100 max_len=5 too_long=refuse', ['max_len=5']),
    'heads':         (dict(train_en='a\n', train_de='a\n'), 'h=3', ['h=3', 'give d_k and d_v']),
}

@pytest.mark.parametrize('case', BAD)
def test_bad_training_input(case, tmp_path):
    files, changes, messages = BAD[case]
    result = run('transformer_train', '--corpus', 'text_en_de', '--data_dir', write(tmp_path / 'data', **files), '--out', tmp_path / 'run', '--set', changes)
    assert result.returncode == 1 and 'Traceback' not in result.stderr
    assert all(m in result.stderr for m in messages), result.stderr

def test_unknown_recipe():
    result = run('transformer_train', '--recipe', 'huge')
    assert result.returncode == 1 and "no recipe 'huge'" in result.stderr and 'multi30k_tiny' in result.stderr

def test_one_line_out_for_one_line_in(trained):
    lines = ['seven', '', 'twenty-one', 'un\u0085known \u2028 \u00e9\U0001f600', ' ', 'nine']
    result = run('transformer_translate', trained, stdin='\n'.join(lines) + '\n')
    out = result.stdout.split('\n')
    assert len(out) == len(lines) + 1 and out[1] == '' and out[4] == ''

def test_evaluate_and_average(trained, tmp_path):
    shown = run('transformer_evaluate', trained, '--beam', '1', '--out', tmp_path / 'hyp').stdout
    assert f"{(tmp_path / 'hyp').read_text().count(chr(10))} sentences" in shown
    assert 'chrF: ' in shown and 'signature: nrefs:1' in shown and 'exact match: ' in shown.splitlines()[-1]
    assert 'step-00000002' in run('transformer_average', trained, '--n', '1').stdout

def test_unequal_test_files(trained, tmp_path):
    files = write(tmp_path / 'test', a='one\ntwo\n', b='eins\n')
    result = run('transformer_evaluate', trained, '--src', files / 'a', '--ref', files / 'b')
    assert result.returncode == 1 and '2 lines' in result.stderr and 'has 1' in result.stderr

def test_missing_tokenizer(trained):
    (trained / 'tokenizer.model').rename(trained / 'moved')
    result = run('transformer_translate', trained, stdin='one\n')
    (trained / 'moved').rename(trained / 'tokenizer.model')
    assert result.returncode == 1 and 'tokenizer.model' in result.stderr and 'Traceback' not in result.stderr
