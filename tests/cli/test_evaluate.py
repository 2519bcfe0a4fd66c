"transformer_evaluate."
from helpers import snapshot_dir, run_in_process, assert_success, assert_user_error, write_files


def test_evaluate_over_its_input(own, capfd, tmp_path):
    files = write_files(tmp_path / 'test', src='seven\n', ref='sieben\n', base='sieben\n')
    for name in 'ref', 'src', 'base':
        result = run_in_process(capfd, 'evaluate', own, '--src', files / 'src', '--ref', files / 'ref', '--baseline', files / 'base', '--output', files / name)
        assert_user_error(result, 'is, or is inside, an input')
    assert_user_error(run_in_process(capfd, 'evaluate', own, '--output', own / 'config.json'), 'already exists')
    assert_user_error(run_in_process(capfd, 'evaluate', own, '--output', tmp_path / 'nowhere' / 'o'), 'nowhere does not exist')
    assert snapshot_dir(files) == dict(src=b'seven\n', ref=b'sieben\n', base=b'sieben\n')

def test_tokenize(own, capfd, tmp_path):
    "The language's tokeniser, or the one that was asked for; an unknown one is refused before anything is translated."
    files = write_files(tmp_path / 'test', src='seven\neight\n', ref='sieben\nacht\n')
    pair = '--src', files / 'src', '--ref', files / 'ref'
    for option, said in ([], 'eff:yes|tok:13a'), (['--tokenize', 'char'], 'eff:no|tok:char'), (['--tokenize', 'intl'], 'eff:yes|tok:intl'):
        assert said in assert_success(run_in_process(capfd, 'evaluate', own, *pair, *option)).stdout
    result = run_in_process(capfd, 'evaluate', own, *pair, '--tokenize', 'words')
    assert_user_error(result, "tokenize='words' is unknown: use one of none, zh, 13a, intl, char")
    assert not result.stdout
