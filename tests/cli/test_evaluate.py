"transformer_evaluate."
from helpers import content, in_here, refused, write


def test_evaluate_over_its_input(own, capfd, tmp_path):
    files = write(tmp_path / 'test', src='seven\n', ref='sieben\n', base='sieben\n')
    for name in 'ref', 'src', 'base':
        result = in_here(capfd, 'evaluate', own, '--src', files / 'src', '--ref', files / 'ref', '--baseline', files / 'base', '--out', files / name)
        refused(result, 'is, or is in, what is read')
    refused(in_here(capfd, 'evaluate', own, '--out', own / 'config.json'), 'already exists')
    refused(in_here(capfd, 'evaluate', own, '--out', tmp_path / 'nowhere' / 'o'), 'there is no folder')
    assert content(files) == dict(src=b'seven\n', ref=b'sieben\n', base=b'sieben\n')
