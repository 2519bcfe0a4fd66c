"""A released model by its name, from a server on the loopback: once, whole, with its checksum; each failure is one line."""
import hashlib
import importlib.util
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from helpers import ROOT, assert_user_error, run_in_process, snapshot_dir

from annotated_transformer.inference import released_models
from annotated_transformer.inference.translator import Translator
from annotated_transformer.utils.validation import UserError

spec = importlib.util.spec_from_file_location('release', ROOT / 'tools/release.py')
release = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release)
NAME, FOLDER = 'multi30k-en-de', ROOT / 'nbs/results/multi30k_en_de'

class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_): pass

@pytest.fixture
def server(tmp_path, monkeypatch):
    "Serves a folder; the cache is empty."
    folder = tmp_path / 'served'
    folder.mkdir()
    with ThreadingHTTPServer(('127.0.0.1', 0), partial(Quiet, directory=folder)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        monkeypatch.setenv('ANNOTATED_TRANSFORMER_RELEASES', f'http://127.0.0.1:{http.server_port}')
        monkeypatch.setenv('ANNOTATED_TRANSFORMER_CACHE', str(tmp_path / 'cache'))
        yield folder
        http.shutdown()

def serve(folder, monkeypatch, data=None):
    "The archive, or other bytes under its name; the checksum is the archive's."
    whole = release.archive(NAME)
    (folder / f'{NAME}.zip').write_bytes(whole if data is None else data(whole))
    monkeypatch.setitem(released_models._CHECKSUMS, NAME, hashlib.sha256(whole).hexdigest())

def test_up_to_date():
    "The cards are made of the records, and the package has the archives' checksums."
    assert not release.faults()

def test_numbers():
    "The model of the demo, as it is released."
    assert Translator.from_pretrained(ROOT / 'nbs/results/numbers_en_de', device='cpu').translate(['twenty-one']) == ['einundzwanzig']

def test_once(server, monkeypatch, tmp_path):
    "The same translations as of the folder in the repository; the second time no server is asked."
    serve(server, monkeypatch)
    caption = ['A man walks his dog.']
    expected = Translator.from_pretrained(FOLDER, device='cpu').translate(caption)
    assert Translator.from_pretrained(NAME, device='cpu').translate(caption) == expected
    (server / f'{NAME}.zip').unlink()
    assert Translator.from_pretrained(NAME, device='cpu').translate(caption) == expected
    assert len([*(tmp_path / 'cache').iterdir()]) == 1

def test_command(server, monkeypatch, capfd):
    serve(server, monkeypatch)
    by_name, by_folder = (run_in_process(capfd, 'translate', name, stdin='A man walks his dog.\n') for name in (NAME, FOLDER))
    assert by_name.returncode == 0 and by_name.stdout == by_folder.stdout and 'hund' in by_name.stdout, by_name.stderr

@pytest.mark.parametrize('data', [lambda whole: whole[:100_000], lambda whole: b'<html>', lambda whole: b'x' + whole[1:]], ids=['cut off', 'a page', 'damaged'])
def test_wrong_bytes(server, monkeypatch, tmp_path, data, capfd):
    "Nothing stays behind, and one line says so."
    serve(server, monkeypatch, data)
    assert_user_error(run_in_process(capfd, 'translate', NAME, stdin='A dog.\n'), NAME, 'checksum differs')
    assert not snapshot_dir(tmp_path / 'cache')

def test_no_network(server, monkeypatch, capfd):
    monkeypatch.setenv('ANNOTATED_TRANSFORMER_RELEASES', 'http://127.0.0.1:1')
    assert_user_error(run_in_process(capfd, 'translate', NAME, stdin='A dog.\n'), 'cannot be downloaded', 'go online')

def test_not_released(server, capfd):
    "The server has no such file."
    assert_user_error(run_in_process(capfd, 'translate', NAME, stdin='A dog.\n'), 'cannot be downloaded', 'ot found')

def test_cache_that_is_a_file(server, monkeypatch, tmp_path, capfd):
    "A cache that cannot be written: its name is that of a file (root writes into every folder)."
    serve(server, monkeypatch)
    (tmp_path / 'cache').write_text('')
    assert_user_error(run_in_process(capfd, 'translate', NAME, stdin='A dog.\n'), 'ANNOTATED_TRANSFORMER_CACHE')

def test_folder_of_that_name(server, monkeypatch, tmp_path):
    "A folder comes first; one that is no run is refused by its name."
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    with pytest.raises(FileNotFoundError, match=f'{NAME} contains no config.json'): Translator.from_pretrained(NAME)

def test_unknown_name(server):
    with pytest.raises(FileNotFoundError, match='multi30k-xx-yy'): Translator.from_pretrained('multi30k-xx-yy')

def test_user_error_is_one(server, monkeypatch):
    serve(server, monkeypatch, lambda whole: b'')
    with pytest.raises(UserError): Translator.from_pretrained(NAME)
