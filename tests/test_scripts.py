"Every script of benchmarks/ and experiments/ starts."
import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import pytest
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from helpers import ROOT, SMALL_OVERRIDES, cli_args, run_python
from pages import in_fresh_process
from processes import run_script

PEERS = {'hugging_face.py': 'transformers'}               # what only the bench extra installs

@pytest.mark.parametrize('script', sorted(f'{folder}/{p.name}' for folder in ('benchmarks', 'experiments', 'experiments/speedrun') for p in (ROOT / folder).glob('*.py')))
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
    in_fresh_process(run_script, *map(str, [ROOT / 'benchmarks/data.py', '--pairs', 1000, '--vocab', 120, '--out', tmp_path / 'x.json']))
    seconds = json.loads((tmp_path / 'x.json').read_text())['1000 pairs']['first']['seconds']
    assert {'fingerprint', 'read and split', 'learn pieces', 'cut into pieces', 'store'} <= set(seconds)

def change_our_loop(step):
    sys.path.insert(0, str(ROOT / 'benchmarks'))
    import toolkits
    from annotated_transformer.training import trainer
    toolkits.ablations[step](trainer)
    with pytest.raises(AttributeError): toolkits.replace(trainer, 'a name that has left', None)

@pytest.mark.parametrize('step', ['products by PyTorch', 'random batches', 'targets as a matrix', 'attention written out', 'Adam one by one', 'the model of Marian', 'the loss of the trainer'])
def test_the_steps_of_the_benchmark_of_toolkits_find_what_they_replace(step):
    if 'Marian' in step or 'trainer' in step: pytest.importorskip('transformers')
    in_fresh_process(change_our_loop, step)

@pytest.mark.nightly
def test_the_benchmark_of_decoding(trained, tmp_path):
    in_fresh_process(run_script, *map(str, [ROOT / 'benchmarks/decoding.py', trained, '--sentences', 12, '--batch', 6, '--rounds', 1, '--out', tmp_path / 'x.json']))
    engines = json.loads((tmp_path / 'x.json').read_text())['engines']
    assert engines['ours, reordered']['same_as_ours'] == 1 and all(e['sentences_per_s'] > 0 for e in engines.values())
    assert all(e['same_as_ours_alpha_0'] > .8 for name, e in engines.items() if 'int8' not in name)

SMALL_RUN = SMALL_OVERRIDES | dict(max_steps=6, average_checkpoints=3)

@pytest.mark.nightly
def test_the_benchmark_of_averaging(tmp_path):
    train(get_recipe('demo', **SMALL_RUN), 'numbers', tmp_path / 'run')
    in_fresh_process(run_script, *map(str, [ROOT / 'benchmarks/averaging.py', tmp_path / 'run', '--points', 3, '--out', tmp_path / 'x.json']))
    record = json.loads((tmp_path / 'x.json').read_text())
    losses = record['losses']
    assert [len(row) for row in record['loss']] == [3] * 3 and losses.keys() == {*(f'step-{n:08d}' for n in (2, 4, 6)), 'mean of the three', 'mean of all 3'}
    assert losses['mean of the three'] == pytest.approx(losses['mean of all 3']) == pytest.approx(record['loss'][1][1], rel=1e-3)

@pytest.mark.nightly
def test_the_benchmark_of_an_ensemble(tmp_path):
    in_fresh_process(run_script, *map(str, [ROOT / 'benchmarks/ensemble.py', '--seeds', 2, '--runs', tmp_path / 'run', '--out', tmp_path / 'x.json', *cli_args(SMALL_RUN)]))
    record = json.loads((tmp_path / 'x.json').read_text())
    assert [*record['scores']] == ['seed 0', 'seed 1', 'ensemble'] and record['best'] in record['scores'] and record['changes'] == SMALL_RUN

@pytest.mark.parametrize('name, cells', [('what_waits', 3 * 2 * 4), ('short_paths', 7 * 2)])
def test_the_experiments_of_section_4_in_small(tmp_path, name, cells):
    in_fresh_process(run_script, *map(str, [ROOT / f'experiments/{name}.py', '--tiny', '--runs', tmp_path / 'runs', '--out', tmp_path / 'x.json']))
    record = json.loads((tmp_path / 'x.json').read_text())
    assert len(record.get('cells') or record['arms']) == cells and record['processor']
    if name == 'short_paths': assert [arm['path'] for arm in record['arms'] if arm['n'] == 8] == [1, 2, 4, 8, 8, 8, 8]

@pytest.fixture
def gpu(monkeypatch):
    "benchmarks/gpu.py as a module; its worker finds it by the same path."
    monkeypatch.syspath_prepend(str(ROOT / 'benchmarks'))
    return importlib.import_module('gpu')

def test_the_benchmark_of_a_gpu_rehearsed_on_a_cpu(tmp_path, gpu):
    result = run_python(ROOT / 'benchmarks/gpu.py', '--tiny', '--output', tmp_path / 'x.json')
    assert result.returncode == 0, result.stderr
    rungs = json.loads((tmp_path / 'x.json').read_text())['rungs']
    assert [r['name'] for r in rungs if r['part'] == 'train'] == [f'{recipe}, {name}' for recipe, name, *_ in gpu.LADDER]
    assert {r['part'] for r in rungs} == set(gpu.SHARES) and all(r['name'] in result.stdout for r in rungs)
    skipped = {'base, few shapes, CUDA graphs': 'CUDA graphs need a GPU', 'big, few shapes, CUDA graphs': 'CUDA graphs need a GPU', 'multi30k_tiny': 'no --data_dir'}
    for r in rungs: assert (r['status'], r.get('reason')) == (('skipped', skipped[r['name']]) if r['name'] in skipped else ('ok', None)), r
    ladder = [r for r in rungs if r['part'] == 'train' and r['status'] == 'ok']
    for r in ladder:
        if r['options'].get('few_shapes'): assert all(B % 8 == T_k % 8 == T_q % 8 == 0 and B * T_k <= 512 for B, T_k, T_q in r['shapes']), r
        elif not r['options'].get('vocab_multiple'): assert abs(r['loss_difference']) < .01, r
        if r['options'].get('compile'): assert r['graphs'] > 0, r
    assert all(r['difference'] < .05 for r in rungs if r['part'] == 'attention')

def test_a_rung_that_fails_is_recorded_and_the_next_one_is_measured(tmp_path, gpu):
    bench, worker = gpu.Bench(tmp_path / 'new/x.json', minutes=1), gpu.Worker()
    def rung(name, need, timeout, *call): bench.rung('train', name, need, lambda limit: dict(value=worker.call(timeout, *call)))
    try:
        rung('raises', 1, 60, 'math', 'sqrt', -1.)
        rung('missing', 1, 60, 'no_such_module', 'f')
        rung('hangs', 1, .5, 'time', 'sleep', 60)
        rung('dies', 1, 60, 'os', '_exit', 3)
        rung('too long', 50, 60, 'math', 'sqrt', 4.)
        rung('works', 1, 60, 'math', 'sqrt', 4.)
    finally: worker.close()
    rungs = {r['name']: r for r in json.loads((tmp_path / 'new/x.json').read_text())['rungs']}
    assert {name: r['status'] for name, r in rungs.items()} == dict(raises='failed', missing='failed', hangs='failed', dies='failed', works='ok') | {'too long': 'skipped'}
    assert rungs['raises']['error'].startswith('ValueError: ') and rungs['missing']['error'] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert rungs['hangs']['error'].startswith('stopped after') and rungs['dies']['error'] == 'the process died, exit status 3'
    assert rungs['too long']['reason'].startswith('needs about 50 s') and rungs['works']['value'] == 2

def test_parts_of_the_benchmark_share_the_time(tmp_path, gpu):
    bench = gpu.Bench(tmp_path / 'x.json', 10, ['train', 'cells'])
    share = gpu.SHARES['train'] / (gpu.SHARES['train'] + gpu.SHARES['cells'])
    assert bench.time_left('train') == pytest.approx(600 * share, abs=5) and bench.time_left('cells') == pytest.approx(600, abs=5)

CHILD = '''
import json, pathlib, signal, sys, time
def stop(*_): pathlib.Path(sys.argv[1], 'metrics.jsonl').write_text('{"step": 5, "tokens_per_s": 7}\\n{"step": 6, "valid_loss": 2}\\n'); print('saved'); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
time.sleep(60)
'''

def test_the_training_run_of_the_benchmark_is_stopped_by_sigterm(tmp_path, gpu):
    (tmp_path / 'run').mkdir()
    assert gpu.train_run(22, [sys.executable, '-c', CHILD, tmp_path / 'run'], tmp_path / 'run') == dict(steps=6, last_line='saved', tokens_per_s=7, valid_loss=2)
    with pytest.raises(RuntimeError, match='^exit status 1: ValueError: no$'):
        gpu.train_run(22, [sys.executable, '-c', 'raise ValueError("no")'], tmp_path / 'run')

@pytest.mark.nightly
def test_heads_are_removed_and_the_record_is_taken_up_again(tmp_path):
    "Two small runs; what was measured of a run is not measured again."
    for seed in 0, 1: train(get_recipe('demo', **SMALL_OVERRIDES | dict(h=2, seed=seed)), 'numbers', tmp_path / f'run_{seed}')
    def start(*seeds):
        return run_python(ROOT / 'experiments/heads.py', *(tmp_path / f'run_{seed}' for seed in seeds), '--pairs', 20, '--draws', 1, '--runs', tmp_path / 'parts', '--out', tmp_path / 'x.json')
    result = start(0)
    assert result.returncode == 0, result.stderr
    run, = json.loads((tmp_path / 'x.json').read_text())['runs']
    assert (run['dataset'], run['seed']) == ('numbers', 0) and len(run['alignment'][0]) == 2 and 0 < run['chance'] < 1
    assert {name: len(curve) for name, curve in run['cross_attention'].items()} == dict(best=1, worst=1) | {'random 0': 1}
    losses = [run['whole'], *run['without_all'].values(), *(curve[0] for kind in (run['cross_attention'], *run['self_attention'].values()) for curve in kind.values())]
    assert len({scores['loss'] for scores in losses}) >= 8 and all(0 <= scores['score'] <= 100 for scores in losses)
    again = start(0, 1)
    assert again.returncode == 0 and 'run_0: ' in again.stdout and again.stdout.count(' minutes') == 1, again.stderr
    first, second = json.loads((tmp_path / 'x.json').read_text())['runs']
    assert first == run and second['seed'] == 1
