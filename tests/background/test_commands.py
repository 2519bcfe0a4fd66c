"The translators of section 2 through the same commands as the Transformer: train, resume, translate, score, and clear words where a command is not theirs."
import json

import pytest
from helpers import EN_DE, snapshot_dir, cli_args, run_in_process, number_lines, assert_user_error, write_files
from processes import run_forked

from annotated_transformer.analysis.table_2 import _MODEL_FAMILIES

TINY = dict(d_model=32, vocab_size=100, max_tokens=512, max_steps=4, warmup_steps=2, average_checkpoints=1, save_every='2 steps', preprocessing='raw', max_len=80, byte_fallback=False)
OTHERS = [name for name in _MODEL_FAMILIES if name != 'transformer_tiny']

def ran(result):
    assert result.returncode == 0, result.stderr
    return result.stdout

@pytest.fixture(scope='module')
def corpus(tmp_path_factory): return write_files(tmp_path_factory.mktemp('families'), train_en=number_lines('en', 200), train_de=number_lines('de', 200))

def begin(capfd, corpus, name, out, *args):
    return run_in_process(capfd, 'train', '--recipe', name, *EN_DE, '--data_dir', corpus, '--output_dir', out, *args)

@pytest.mark.parametrize('name', OTHERS)
def test_same_commands(capfd, corpus, tmp_path, name):
    "Two updates and two more are four; one line out for each line in, from any engine option; scores; a config that names the family."
    whole, parts = tmp_path / 'whole', tmp_path / 'parts'
    ran(begin(capfd, corpus, name, whole, *cli_args(TINY)))
    ran(begin(capfd, corpus, name, parts, *cli_args(TINY | dict(max_steps=2))))
    ran(begin(capfd, corpus, name, parts, *cli_args(TINY), '--resume'))
    assert snapshot_dir(whole)['model.safetensors'] == snapshot_dir(parts)['model.safetensors']
    assert json.loads((whole / 'config.json').read_text())['architecture'] in ('recurrent', 'bytenet', 'convs2s')
    for options in [], ['--beam', '1'], ['--n_best', '2'], ['--do_sample'], ['--overlong', 'sentences']:
        lines = ran(run_in_process(capfd, 'translate', whole, *options, stdin='twenty-one\n\nseven\n')).split('\n')
        n = 2 if '--n_best' in options else 1
        assert len(lines) == 3 * n + 1 and lines[n] == ''
    files = write_files(tmp_path, src=number_lines('en', 5), ref=number_lines('de', 5))
    files = '--src', files / 'src', '--ref', files / 'ref'
    assert 'chrF: ' in ran(run_in_process(capfd, 'evaluate', whole, *files)) and len(ran(run_in_process(capfd, 'score', whole, *files)).splitlines()) >= 5

@pytest.mark.parametrize('name', OTHERS)
def test_not_theirs(capfd, corpus, tmp_path, name):
    "Fields that the family has not, and formats that know only the Transformer, are refused by name."
    out = tmp_path / 'run'
    assert_user_error(begin(capfd, corpus, name, out, *cli_args(dict(h=8))), 'unknown option --h')
    ran(begin(capfd, corpus, name, out, *cli_args(TINY | dict(max_steps=2))))
    before = snapshot_dir(out)
    for to in 'ctranslate2', 'transformers', 'onnx':
        result = run_in_process(capfd, 'export', out, '--format', to, '--output_dir', tmp_path / to)
        assert_user_error(result, "not 'transformer'")
    assert snapshot_dir(out) == before

@pytest.mark.parametrize('name, field, message', [
    ('rnn_attention_tiny', dict(score='soft'), 'score'), ('rnn_tiny', dict(d_model=33), 'd_model=33 is odd'), ('rnn_tiny', dict(input_feeding=True), 'input_feeding=True has no use'),
    ('bytenet_tiny', dict(d_model=33), 'd_model=33 is odd'), ('bytenet_tiny', dict(a=0), 'a=0'), ('convs2s_tiny', dict(k=4), 'k=4 is even')])
def test_impossible(capfd, corpus, tmp_path, name, field, message):
    assert_user_error(begin(capfd, corpus, name, tmp_path / 'run', *cli_args(field)), message)
    assert not (tmp_path / 'run').exists()

def test_by_command(corpus, tmp_path):
    "In a process of its own, where nothing but the name of the recipe tells which module is needed."
    for name in OTHERS[:1]: assert run_forked('train', '--recipe', name, *EN_DE, '--data_dir', corpus, '--output_dir', tmp_path / name,
                                       *cli_args(TINY | dict(max_steps=2))).returncode == 0
    assert run_forked('translate', tmp_path / OTHERS[0], stdin='seven\n').stdout.count('\n') == 1
