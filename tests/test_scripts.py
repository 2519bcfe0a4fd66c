"Every script of benchmarks/ and experiments/ starts."
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import pytest
from helpers import ROOT, run_python

PEERS = {'hugging_face.py': 'transformers'}               # what only the bench extra installs

@pytest.mark.parametrize('script', sorted(f'{folder}/{p.name}' for folder in ('benchmarks', 'experiments') for p in (ROOT / folder).glob('*.py')))
def test_every_script_starts(script, monkeypatch):
    "In a copy of this process, which has loaded what is slow to load."
    if peer := PEERS.get(Path(script).name): pytest.importorskip(peer)
    monkeypatch.setattr(sys, 'argv', [script, '--help'])
    monkeypatch.syspath_prepend(str((ROOT / script).parent))
    if not (child := os.fork()):
        status = 1
        try: runpy.run_path(str(ROOT / script), run_name='__main__'); status = 0
        except SystemExit as e: status = e.code or 0
        except BaseException: traceback.print_exc()
        finally: sys.stderr.flush(); os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def test_the_benchmark_of_the_data(tmp_path):
    result = run_python(ROOT / 'benchmarks/data.py', '--pairs', 1000, '--vocab', 120, '--out', tmp_path / 'x.json')
    assert result.returncode == 0, result.stderr
    seconds = json.loads((tmp_path / 'x.json').read_text())['1000 pairs']['first']['seconds']
    assert {'fingerprint', 'read and split', 'learn pieces', 'cut into pieces', 'store'} <= set(seconds)
