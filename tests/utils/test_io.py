"Files are written whole or not at all."
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
