"A grid of runs that is killed goes on: what was finished stays, and the run at hand continues from its last checkpoint."
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from annotated_transformer.data.number_names import number_speller
from helpers import EN_DE, cli_args

SMALL = dict(N=1, d_model=32, d_ff=64, h=2, vocab_size=300, max_tokens=512, max_steps=12, warmup_steps=6, average_checkpoints=2, max_len=80, save_every='2 steps')

@pytest.fixture
def grid(tmp_path):
    for lang in ('en', 'de'):
        name = number_speller(lang)
        (tmp_path / f'train.{lang}').write_text('\n'.join(f'{name(i)} {name(7 * i % 300)}' for i in range(300)))
    def start(runs):
        return subprocess.Popen([sys.executable, 'experiments/table3.py', *EN_DE, '--data', str(tmp_path), '--rows', 'E', '--seeds', '1',
                                 '--base_seeds', '2', *cli_args(SMALL), '--runs', str(tmp_path / runs), '--out', str(tmp_path / f'{runs}.json')],
                                cwd=Path(__file__).parent.parent, env=os.environ | {'OMP_NUM_THREADS': '1'}, stderr=subprocess.PIPE, text=True)
    return start

@pytest.mark.nightly
def test_a_killed_grid_goes_on(grid, tmp_path):
    whole = grid('whole')
    assert not whole.wait(300), whole.stderr.read()
    killed, deadline = grid('killed'), time.time() + 120
    parts = tmp_path / 'killed/text_en_de_mini_parts'
    while time.time() < deadline and not [*(tmp_path / 'killed/text_en_de_mini_E_learned_0/checkpoints').glob('step-*')]: time.sleep(.02)
    killed.send_signal(signal.SIGKILL); killed.wait()
    done = {p.name: p.stat().st_mtime_ns for p in parts.glob('base-*')}
    assert [*done] == ['base-0.json'] and not (tmp_path / 'killed.json').exists()
    again = grid('killed')
    assert not again.wait(300), again.stderr.read()
    assert (parts / 'base-0.json').stat().st_mtime_ns == done['base-0.json']
    records = [json.loads((tmp_path / f'{runs}.json').read_text())['runs'] for runs in ('whole', 'killed')]
    assert {row: len(found) for row, found in records[0].items()} == dict(base=2, E_learned=1)
    for row, found in records[0].items():
        for ours, theirs in zip(found, records[1][row]): assert ours['curve'] == theirs['curve'] and ours['loss'] == theirs['loss']
