"Files are written whole or not at all, and folders only by the kind of command that made them."
import hashlib

import pytest

from annotated_transformer.utils import io as files


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    from pathlib import Path
    write_bytes = Path.write_bytes
    def half(self, data): write_bytes(self, data[:3]); raise OSError(28, 'No space left on device')
    monkeypatch.setattr(Path, 'write_bytes', half)
    with pytest.raises(OSError): files.atomic_write_text(tmp_path / 'page.html', 'long text')
    assert not [*tmp_path.iterdir()]

def test_the_ends_of_a_line_are_found_in_one_pass():
    from time import perf_counter
    blanks = ' \u00a0' * 50_000
    begin = perf_counter()
    assert files._strip_invisible(f'{blanks}a{blanks}b{blanks}') == f'a{blanks}b' and perf_counter() - begin < 1
    assert not [c for c in map(chr, range(0x10000)) if c.isspace() and files._strip_invisible(c)]
    for c in '\u00ad\u061c\u202a\u202e\u2066\u2069\u180e\0\x7f\x9f': assert files._strip_invisible(f'{c}a{c}b{c}') == f'a{c}b'
    for text in '\u0600a', 'क्\u0301', '❤\ufe0f', '\U0001f3f4\U000e0067\U000e007f': assert files._strip_invisible(text) == text    # these can be seen

@pytest.mark.parametrize('name', ['a.txt', 'a.txt.gz'])
def test_a_text_is_read_as_it_was_written(name, tmp_path):
    files.atomic_write_text(tmp_path / name, 'eins\nzwei\n')
    with files._open_maybe_compressed(tmp_path / name) as f: assert f.read() == b'eins\nzwei\n'
    assert [p.name for p in tmp_path.iterdir()] == [name]

def test_a_gzip_file_that_was_cut(tmp_path):
    files.atomic_write_text(path := tmp_path / 'a.gz', 'eins\n')
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match='a.gz is not a complete gzip file'), files._open_maybe_compressed(path) as f: f.read()

def test_checksum(tmp_path):
    (tmp_path / 'a').write_bytes(data := b'eins\n' * 500_000)       # more than one block
    assert files._sha256_file(tmp_path / 'a') == hashlib.sha256(data).hexdigest()

def test_whose_folder(tmp_path):
    "A run may be continued in its own folder; it may not begin beside a text, nor an export in a run's."
    run, texts = tmp_path / 'run', tmp_path / 'texts'
    texts.mkdir()
    (texts / 'train.en').touch()
    for _ in range(2):
        files._create_output_dir(run, 'run')
        (run / 'model.safetensors').touch()
    with pytest.raises(FileExistsError, match=r'contains output of another command \(run\)'): files._create_output_dir(run, 'export')
    with pytest.raises(FileExistsError, match=r'contains other files \(train.en\)'): files._create_output_dir(texts, 'run')
    assert [p.name for p in texts.iterdir()] == ['train.en']

def test_a_file_is_not_written_over(tmp_path):
    "Nor is its temporary file, nor anything in an input."
    for name in 'a', 'b.tmp': (tmp_path / name).touch()
    for name in 'a', 'b':
        with pytest.raises(FileExistsError, match='already exists'): files._check_output_path(tmp_path / name)
    with pytest.raises(ValueError, match='is, or is inside, an input'): files._check_output_path(tmp_path / 'c', [tmp_path])
    with pytest.raises(FileNotFoundError, match='does not exist'): files._check_output_path(tmp_path / 'd/c')
    files._check_output_path(tmp_path / 'c', [None])

def test_no_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match='is not in a clone'): files.project_path('settings.ini')

@pytest.mark.parametrize('text, stripped', [(' \u200bwalk\ufeff', 'walk'), ('\ufeffمی\u200c ', 'می\u200c')])
def test_joiners_stay(text, stripped): assert files._strip_invisible(text) == stripped

def test_an_error_names_its_rank(capfd, monkeypatch):
    files._print_error('x')
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    files._print_error('x')
    assert capfd.readouterr().err == 'error: x\nerror in process 1 of 2: x\n'
