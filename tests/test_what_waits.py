"The page of timings on planted records: each prediction can be confirmed and contradicted."
import json
import math
import random
import re
import sys

import matplotlib
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from helpers import ROOT

matplotlib.use('Agg')
PAGE = json.loads((ROOT / 'nbs/lab/what_waits.ipynb').read_text(encoding='utf-8'))
CELLS = {c['id']: ''.join(c['source']) for c in PAGE['cells']}
TIMED = 'imports', 'prediction', 'record', 'seconds-figure', 'crossings', 'threads-figure', 'sequential-share', 'verdict'

@pytest.fixture
def what_waits(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / 'experiments'))
    import what_waits
    threads = torch.get_num_threads()
    yield what_waits
    torch.set_num_threads(threads)                 # the benchmark tries one and two

def planted(what_waits, sequential, slower=lambda name, n, B: 1., noise=.01, rounds=5):
    "Seconds as the operations say, a share of them sequential by layer and batch, the rest halved by a second thread."
    a, draw = what_waits.p.parse_args([]), random.Random(0)
    sizes = {(n, B): what_waits.reason_to_skip(n, B, 512, a) for B in what_waits.BATCHES for n in what_waits.LENGTHS}
    def seconds(name, n, B, t):
        share = sequential(name, B)
        return what_waits.gflop(name, n, B, 512) / 80 * slower(name, n, B) * (share + (1 - share) / t) * math.exp(draw.gauss(0, noise))
    cells = [dict(layer=name, n=n, batch=B, threads=t, seconds=[seconds(name, n, B, t) for _ in range(rounds)])
             for (n, B), reason in sizes.items() if not reason for name in what_waits.LAYERS for t in (1, 2)]
    return dict(command='python planted', commit='0', processor='planted', machine='x86_64, 2 threads', versions=dict(torch='2'), load_before=0., d_model=512, rounds=rounds,
                batches=what_waits.BATCHES, cells=cells, skipped=[dict(n=n, batch=B, reason=reason) for (n, B), reason in sizes.items() if reason])

def run_page(record, cells, capsys):
    space = {}
    for key in cells:
        exec(CELLS[key], space)
        space['read_json'] = lambda _: record
    matplotlib.pyplot.close('all')
    return space, capsys.readouterr().out

def as_predicted(name, B): return .5 if (name, B) == ('recurrence', 1) else .02
def thin_slices(name, n, B): return 1.5 if (name, B) == ('recurrence', 1) else 1.

def test_what_is_predicted_is_confirmed(what_waits, capsys):
    space, out = run_page(planted(what_waits, as_predicted, thin_slices), TIMED, capsys)
    assert [d.verdict for d in space['decisions']] == 15 * ['confirmed'], out
    assert 'predictions: 15 confirmed' in out and 'skipped:\n  n = 4,096, batch 16: self-attention takes 2,062 GFLOP, more than 640' in out
    assert 'batch of 64: recurrence is slower up to n = 512 (by operations from n = 1,024 on)' in out
    near = {(int(B), name): int(n.replace(',', '')) for B, name, n in re.findall(r'batch of +(\d+): (\w+) is faster from n ≈ ([\d,]+) on', out)}
    assert near[16, 'recurrence'] == pytest.approx(1024, rel=.05) and near[16, 'convolution'] == pytest.approx(512, rel=.05) and near[1, 'recurrence'] > 1800
    assert re.search('batch of  1: recurrence (49|50|51)%, convolution [0-4]%', out), out

def test_each_prediction_can_be_contradicted(what_waits, capsys):
    "Seconds that do not depend on the operations, a batch that favours self-attention, and a second thread that gains recurrence most."
    def reverse(name, n, B):
        if name == 'self-attention': return 1.
        own = what_waits.gflop(name, n, B, 512) / what_waits.gflop('self-attention', n, B, 512)
        return own ** -2 * (.5 if (name, B) == ('recurrence', 1) else 1.)
    space, out = run_page(planted(what_waits, lambda name, B: {'self-attention': .5, 'recurrence': 0., 'convolution': .2}[name], reverse), TIMED, capsys)
    assert [d.verdict for d in space['decisions']] == 15 * ['contradicted'], out
    assert 'predictions: 15 contradicted' in out

@pytest.mark.parametrize('rounds, noise', [(2, .01), (5, .8)])
def test_few_or_noisy_rounds_are_undecided(what_waits, capsys, rounds, noise):
    out = run_page(planted(what_waits, as_predicted, thin_slices, noise, rounds), TIMED, capsys)[1]
    assert 'predictions: 15 undecided' in out, out

def test_the_layers_take_the_operations_of_the_prediction(what_waits):
    "But those of the compiled LSTM, which the counter does not see: its matrices and one row for each position."
    for name, layer in what_waits.build_layers(16).items():
        x = torch.randn(2, 24, 16)
        if name == 'self-attention': layer.need_weights = True
        with FlopCounterMode(display=False) as counter: assert layer(x).shape == x.shape
        counted = counter.get_total_flops() or 2 * x.size(0) * x.size(1) * sum(p.numel() for p in layer.parameters() if p.ndim == 2)
        assert 3e-9 * counted == pytest.approx(what_waits.gflop(name, 24, 2, 16)), name

def test_a_size_is_skipped_for_time_or_for_memory(what_waits):
    a = what_waits.p.parse_args([])
    assert what_waits.reason_to_skip(2048, 16, 512, a) is None and 'GFLOP' in what_waits.reason_to_skip(4096, 64, 512, a)
    a.max_gflop = 1e9
    assert what_waits.reason_to_skip(4096, 64, 512, a) == 'about 15.0 GB of memory, more than 8'

def test_a_busy_machine_and_sleeping_threads_give_no_record(what_waits, monkeypatch, tmp_path):
    a = what_waits.p.parse_args(['--out', str(tmp_path / 'x.json')])
    for load, policy, said in ((1., '', 'this machine is busy'), (0., 'passive', 'OMP_WAIT_POLICY=passive: ')):
        monkeypatch.setattr(what_waits.os, 'getloadavg', lambda load=load: (load, 0., 0.))
        monkeypatch.setenv('OMP_WAIT_POLICY', policy)
        with pytest.raises(SystemExit, match=said): what_waits.main(a)

def test_interrupted_it_keeps_what_is_measured(what_waits, monkeypatch, tmp_path, capsys):
    args = ['what_waits.py', '--tiny', '--runs', str(tmp_path / 'runs'), '--out', str(tmp_path / 'x.json')]
    monkeypatch.setattr(sys, 'argv', args)
    measured, whole = [], what_waits.measure_size
    def third_fails(layers, d, n, B, *rest):
        if len(measured) == 3: raise KeyboardInterrupt
        measured.append((n, B))
        return whole(layers, d, n, B, *rest)
    monkeypatch.setattr(what_waits, 'measure_size', third_fails)
    with pytest.raises(SystemExit) as stopped: what_waits.main(what_waits.p.parse_args(args[1:]))
    assert stopped.value.code == 130 and capsys.readouterr().err.endswith('the same command continues\n') and not (tmp_path / 'x.json').exists()
    kept = {p.name: p.read_text() for p in (tmp_path / 'runs').iterdir()}
    monkeypatch.setattr(what_waits, 'measure_size', lambda *args: measured.append(args[2:4]) or whole(*args))
    what_waits.main(what_waits.p.parse_args(args[1:]))
    record = json.loads((tmp_path / 'x.json').read_text())
    assert len(measured) == 8 and len(kept) == 4 and all((tmp_path / 'runs' / name).read_text() == text for name, text in kept.items())
    assert {(c['layer'], c['n'], c['batch'], c['threads'], len(c['seconds'])) for c in record['cells']} == {
        (name, n, B, t, 2) for name in what_waits.LAYERS for n in (8, 16) for B in (1, 2) for t in (1, 2)}
    assert all(s > 0 for c in record['cells'] for s in c['seconds']) and record['processor'] and record['skipped'] == []
