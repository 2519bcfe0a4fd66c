"transformer_evaluate."
from helpers import content, in_here, ran, refused, write


def test_evaluate_over_its_input(own, capfd, tmp_path):
    files = write(tmp_path / 'test', src='seven\n', ref='sieben\n', base='sieben\n')
    for name in 'ref', 'src', 'base':
        result = in_here(capfd, 'evaluate', own, '--src', files / 'src', '--ref', files / 'ref', '--baseline', files / 'base', '--out', files / name)
        refused(result, 'is, or is in, what is read')
    refused(in_here(capfd, 'evaluate', own, '--out', own / 'config.json'), 'already exists')
    refused(in_here(capfd, 'evaluate', own, '--out', tmp_path / 'nowhere' / 'o'), 'there is no folder')
    assert content(files) == dict(src=b'seven\n', ref=b'sieben\n', base=b'sieben\n')

def test_tokenize(own, capfd, tmp_path):
    "The language's tokeniser, or the one that was asked for; an unknown one is refused before anything is translated."
    files = write(tmp_path / 'test', src='seven\neight\n', ref='sieben\nacht\n')
    pair = '--src', files / 'src', '--ref', files / 'ref'
    for option, said in ([], 'eff:yes|tok:13a'), (['--tokenize', 'char'], 'eff:no|tok:char'), (['--tokenize', 'intl'], 'eff:yes|tok:intl'):
        assert said in ran(in_here(capfd, 'evaluate', own, *pair, *option)).stdout
    result = in_here(capfd, 'evaluate', own, *pair, '--tokenize', 'words')
    refused(result, "tokenize='words' is unknown: use one of none, zh, 13a, intl, char")
    assert not result.stdout
