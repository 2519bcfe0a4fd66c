"The speedrun: a tiny entry from start to end, killed and resumed, its clock, its rules, and the tables of its page."
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.recipe import flatten_recipe, get_recipe
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training import trainer
from annotated_transformer.utils.validation import UserError
from helpers import ROOT, SINGLE_THREAD_ENV, cli_args, write_files

FOLDER = ROOT / 'experiments/speedrun'
TINY = dict(N=1, d_model=32, d_ff=64, h=2, vocab_size=30, byte_fallback=False, preprocessing='raw', max_tokens=512, max_steps=30, warmup_steps=10,
            max_len=60, P_drop=.1, save_every='10 steps', cpu_matmul_backend='pytorch')
UNREACHABLE = '--target', '101'
SESSION = dict(commit='abc1234', changed_files=False, threads=2, device='cpu', processor='P')

def load_script(name):
    "A script as a new module: reading its arguments adds options to its parser."
    spec = importlib.util.spec_from_file_location(name, FOLDER / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

@pytest.fixture
def speedrun(monkeypatch):
    for folder in (ROOT / 'experiments', FOLDER): monkeypatch.syspath_prepend(str(folder))
    return load_script('speedrun')

@pytest.fixture
def text(tmp_path):
    "Sources of two letters, targets that are all alike: learned in a few steps."
    letters = 'abcdefghij' * 6
    return write_files(tmp_path / 'text', train_en='\n'.join(f'{a} {b}' for a, b in zip(letters, letters[3:] + letters)), train_de='\n'.join(['p q r s t'] * 60))

@pytest.fixture
def race(speedrun, text, tmp_path, monkeypatch, capfd):
    "The command in this process; the reference speed is twice that of a standard hour."
    def start(*args, entry='published', runs='runs', **patches):
        script = load_script('speedrun')
        for name, value in (dict(reference_speed=lambda: 2. * script.NOMINAL_SPEED) | patches).items(): monkeypatch.setattr(script, name, value)
        monkeypatch.setattr(sys, 'argv', ['speedrun.py', entry, '--dataset', 'text', '--data', str(text), '--runs', str(tmp_path / runs), *cli_args(TINY), *args])
        capfd.readouterr()
        with script._exit_on_user_error(): script.main(script.read_arguments(script.p, 'multi30k_tiny'))
        return json.loads((tmp_path / f'{runs}/{entry}_seed0.json').read_text()), capfd.readouterr().out
    return start

def results(log): return [(row['step'], row['bleu']) for row in log['evaluations']]

def test_the_clock_stops_at_the_target(race, speedrun, tmp_path):
    log, out = race('--target', '50', '--save_every', '5 steps')
    *before, last = rows = log['evaluations']
    means = [sum(row['bleu'] for row in rows[max(1, i - 3):i]) / 3 for i in range(2, len(rows) + 1)]
    assert log['reached'] is True and means[-1] >= 50 > max(means[:-1]) and last['step'] < TINY['max_steps'] and f'BLEU {means[-1]:.2f}' in out
    assert len(RunDirectory(tmp_path / 'runs/published_seed0').checkpoints()) == 1 and f"at step {last['step']}" in out
    assert speedrun.hours(log) == pytest.approx((2 * last['seconds'] / 3600, last['wall_seconds'] / 3600)) and last['seconds'] > 0

def test_a_target_that_is_not_reached(race):
    log, out = race(*UNREACHABLE)
    assert log['reached'] is False and [step for step, _ in results(log)] == [0, 10, 20, 30] and '101 not reached (best ' in out
    assert log['n_valid'] == 6 and log['trial']['N'] == 1 and log['sessions'][0]['threads'] == torch.get_num_threads()
    assert race(*UNREACHABLE) == (log, out)                                  # finished: only printed

def crash_in_step(monkeypatch, script_patches):
    run_step = trainer._run_step
    def step(recipe, step, *args):
        if step == 15: raise MemoryError
        return run_step(recipe, step, *args)
    monkeypatch.setattr(trainer, '_run_step', step)

def terminate_in_step(monkeypatch, script_patches):
    run_step = trainer._run_step
    def step(recipe, step, *args):
        if step == 15: os.kill(os.getpid(), signal.SIGTERM)
        return run_step(recipe, step, *args)
    monkeypatch.setattr(trainer, '_run_step', step)

def crash_in_evaluation(monkeypatch, script_patches):
    calls, score = [], load_script('speedrun').validation_bleu
    def bleu(*args):
        calls.append(args)
        if len(calls) == 2: raise MemoryError
        return score(*args)
    script_patches['validation_bleu'] = bleu

@pytest.mark.parametrize('crash, resumed_from', [(crash_in_step, 10), (terminate_in_step, 15), (crash_in_evaluation, 20)])
def test_a_killed_run_has_the_log_of_a_whole_one(race, monkeypatch, tmp_path, crash, resumed_from):
    whole, _ = race(*UNREACHABLE, runs='whole')
    patches = {}
    with monkeypatch.context() as m:
        crash(m, patches)
        with pytest.raises(SystemExit): race(*UNREACHABLE, **patches)
    killed = json.loads((tmp_path / 'runs/published_seed0.json').read_text())
    assert killed['reached'] is None and results(killed) == results(whole)[:2]
    again, _ = race(*UNREACHABLE)
    assert results(again) == results(whole) and [s['from_step'] for s in again['sessions']] == [0, resumed_from]
    seconds = [row['seconds'] for row in again['evaluations']]
    assert again['evaluations'][1] == killed['evaluations'][1] and all(a < b for a, b in zip(seconds, seconds[1:]))
    assert {k: again[k] for k in again if k not in ('sessions', 'evaluations')} == {k: whole[k] for k in whole if k not in ('sessions', 'evaluations')}

@pytest.mark.nightly
def test_a_run_killed_by_sigkill_goes_on(race, text, tmp_path):
    whole, _ = race(*UNREACHABLE, runs='whole')
    args = ['published', '--dataset', 'text', '--data', text, '--runs', tmp_path / 'runs', *cli_args(TINY), *UNREACHABLE]
    process = subprocess.Popen([sys.executable, *map(str, [FOLDER / 'speedrun.py', *args])], env=SINGLE_THREAD_ENV | dict(PYTHONPATH=str(ROOT)), cwd=ROOT)
    deadline = time.time() + 200
    while time.time() < deadline and not [*(tmp_path / 'runs').glob('*/checkpoints/step-*')]: time.sleep(.02)
    process.kill(); process.wait()
    again, _ = race(*UNREACHABLE)
    assert results(again) == results(whole)

def test_the_clock_counts_the_steps_alone(race, monkeypatch):
    "Beside a stopwatch around each step; evaluations of half a second are off the clock."
    run_step, seconds = trainer._run_step, []
    def step(*args):
        start = time.perf_counter()
        time.sleep(.04)
        result = run_step(*args)
        seconds.append(time.perf_counter() - start)
        return result
    monkeypatch.setattr(trainer, '_run_step', step)
    log, _ = race(*UNREACHABLE, validation_bleu=lambda *_: time.sleep(.5) or 7.)
    assert sum(seconds) <= log['evaluations'][-1]['wall_seconds'] < sum(seconds) + .9 and [bleu for _, bleu in results(log)] == [0, 7, 7, 7]

def test_other_work_for_a_minute_does_not_count(speedrun, monkeypatch):
    "Of seven lines two are slow: all tokens count at the median speed, as wall-clock seconds all lines do. A line before the start does not."
    ten = torch.ones(1, 11, dtype=torch.long)
    monkeypatch.setattr(speedrun, 'load_batches', lambda *_: [(None, ten)] * 80)
    lines = [dict(step=10 * i, loss=1., tokens_per_s=50. if i in (3, 4) else 100.) for i in range(1, 9)] + [dict(step=80, valid_loss=2.)]
    run = SimpleNamespace(recipe=get_recipe('multi30k_tiny'), data=Path('data'), metrics=lambda end: lines)
    model = SimpleNamespace(pad_id=0, labels=lambda tgt: tgt[:, 1:])
    assert speedrun.training_seconds(run, model, 10, 80) == (7., 9.)

def test_the_reference_runs_by_itself(speedrun, monkeypatch):
    "In a process of its own, with the threads of the training, and without this package: settings such as kept memory do not reach it."
    text = (FOLDER / 'reference.py').read_text()
    assert 'annotated_transformer' not in text
    state, seen = torch.get_rng_state(), []
    def child(args, env, **options):
        seen.append((args[1], env['OMP_NUM_THREADS']))
        return subprocess.check_output([args[0], '-c', text.replace('speed())', 'speed(1, 2, 4, 50))')], env=env, **options)
    monkeypatch.setattr(speedrun, 'subprocess', SimpleNamespace(check_output=child))
    assert speedrun.reference_speed() > 0 and torch.equal(state, torch.get_rng_state())
    assert seen == [(FOLDER / 'reference.py', str(torch.get_num_threads()))]

@pytest.mark.parametrize('files, args, message', [
    (dict(broken_yaml='model:\n  n_layers: 3\n'), (), "broken.yaml: unknown field 'n_layers'"),
    (dict(broken_yaml='model: ['), (), 'broken.yaml'),
    (dict(diverges_yaml='model: {h: 2}\n'), ('--peak_lr', '1e30', '--warmup_steps', '1'), 'the loss of step 2'),
    (dict(other_yaml='architecture: no_such\n'), (), "unknown architecture 'no_such'"),
    ({}, (), 'absent.yaml: no such recipe file')])
def test_a_broken_entry_is_one_line(race, tmp_path, capfd, files, args, message):
    write_files(tmp_path, **files)
    name = [*files, 'absent_yaml'][0].replace('_', '.')
    with pytest.raises(SystemExit) as e: race(*args, entry=str(tmp_path / name))
    line = capfd.readouterr().err.replace('\r', '\n').strip().split('\n')[-1]
    assert e.value.code == 1 and line.startswith('error: ') and message in line, line

def test_another_setting_needs_other_runs(race):
    race('--target', '50')
    with pytest.raises(SystemExit): race('--target', '60')
    with pytest.raises(SystemExit): race('--target', '50', '--P_drop', '0')

def test_the_published_entry_is_the_recipe_of_the_package(speedrun):
    "But for what the rules set."
    entry, recipe = (flatten_recipe(r) for r in (speedrun.load_entry('published'), get_recipe('multi30k_tiny')))
    assert {k: v for k, v in entry.items() if k not in speedrun.RULES} == {k: v for k, v in recipe.items() if k not in speedrun.RULES}
    assert {k: entry[k] for k in speedrun.RULES} == speedrun.RULES

def test_modules_of_entries_are_short():
    for path in (FOLDER / 'entries').glob('*.py'): assert len(path.read_text().splitlines()) <= 60, path

def test_two_passes_that_agree(speedrun):
    recipe, base = speedrun.load_entry('consistency', vocab_size=30, N=1, d_model=16, d_ff=32, h=2, P_drop=.5), speedrun.load_entry('published', vocab_size=30, N=1, d_model=16, d_ff=32, h=2, P_drop=.5)
    model, plain = build_model(recipe.architecture, recipe.model), build_model('transformer', base.model)
    plain.load_state_dict(model.state_dict())
    src, tgt = torch.randint(1, 30, (3, 6)), torch.randint(1, 30, (3, 7))
    tgt[1, 5:] = 0
    torch.manual_seed(1); loss, logged = model.train().loss(src, tgt)
    torch.manual_seed(1); logits = plain.train()(torch.cat([src, src]), torch.cat([tgt, tgt])[:, :-1])
    p, q = (x[tgt[:, 1:] != 0].log_softmax(-1) for x in logits.chunk(2))
    divergence = F.kl_div(q, p, reduction='sum', log_target=True) + F.kl_div(p, q, reduction='sum', log_target=True)
    torch.testing.assert_close(loss - logged, 5 / 4 * divergence)
    assert divergence > 1 and not logged.requires_grad
    torch.testing.assert_close(model.eval().loss(src, tgt)[0], plain.eval().loss(src, tgt)[0])           # no dropout: the plain loss

@pytest.fixture
def records(speedrun, tmp_path, monkeypatch):
    "records.py on a copy of its folder, and logs that keep the rules."
    module = load_script('records')
    folder = tmp_path / 'speedrun'
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns('__pycache__', 'logs'))
    for name in 'RECORDS', 'COST', 'FINISHED', 'CLOCK': monkeypatch.setattr(module, name, folder / f'{name.lower()}.json')
    monkeypatch.setattr(module, 'HERE', folder)
    (folder / 'records.json').write_text('[]')
    def make_logs(entry, seconds, /, **changes):
        paths = []
        for seed, value in enumerate(seconds):
            log = dict(entry=entry, seed=seed, target=39., corpus=['multi30k', 'en', 'de'], n_valid=1014, trial={}, reached=True,
                       files={f.name: module._sha256_file(f) for f in module.entry_files(entry)},
                       sessions=[SESSION],
                       evaluations=[dict(step=100 * i, bleu=39.5 * (i > 0), seconds=value * i / 3, wall_seconds=value * i / 3, reference=4096.) for i in range(4)]) | changes
            paths.append(tmp_path / f'{entry}_seed{seed}.json')
            paths[-1].write_text(json.dumps(log))
        return paths
    module.make_logs = make_logs
    return module

def add(records, paths): records.main(records.p.parse_args(['--add', *map(str, paths)]))

def test_records_become_a_table_with_verdicts(records):
    add(records, records.make_logs('published', [3600, 3700, 3500, 3650, 3550]))
    add(records, records.make_logs('pre_norm', [1800, 1860, 1740, 1850, 1750]))
    add(records, records.make_logs('higher_rate', [3700, 3600, 3700, 3500, 3600]))
    text, found = (records.HERE / 'README.md').read_text(), records.read(records.RECORDS)
    assert [r['hours'][0] for r in found] == pytest.approx([1, .5, 3700 / 3600]) and all((records.HERE / log).is_file() for r in found for log in r['logs'])
    rows = [line for line in text.split('\n') if '| abc1234 |' in line]
    assert rows[0].startswith('| [pre_norm](entries/pre_norm.yaml) | 5 | 0.50 ± 0.02 |') and '| -0.50, confirmed |' in rows[0]
    assert '| +0.01, undecided |' in next(row for row in rows if 'higher_rate' in row) and 'pre_norm beside published, standard hours: 5 seeds, paired, -0.500' in text
    add(records, records.make_logs('pre_norm', [4800, 4940, 4700, 4850, 4760]))                             # again: replaced
    assert len(records.read(records.RECORDS)) == 3 and '| +0.34, contradicted |' in (records.HERE / 'README.md').read_text()
    before = records.read(records.RECORDS)
    add(records, [records.HERE / log for log in before[-1]['logs']])                                         # from where they were copied to
    assert records.read(records.RECORDS) == before and all(records.make_record([records.HERE / log for log in r['logs']]) == r for r in before)

@pytest.mark.parametrize('changes, message', [
    (dict(trial=dict(N=1)), 'a trial'), (dict(target=38.), 'the target is 39'), (dict(n_valid=100), 'all 1,014 captions'), (dict(corpus=['multi30k', 'de', 'en']), 'en-de'),
    (dict(reached=False), 'was not reached'), (dict(evaluations=[dict(step=i, bleu=38., seconds=1., wall_seconds=1., reference=4096.) for i in range(4)]), 'was not reached'), (dict(entry='unforeseen'), 'no line in PREDICTIONS'), (dict(files={'published.yaml': '0'}), 'its entry is not that of entries/'), (dict(sessions=[SESSION | dict(threads=1)]), '1 threads'),
    (dict(sessions=[SESSION | dict(device='cuda')]), 'cuda'), (dict(sessions=[SESSION | dict(changed_files=True)]), 'without changed files'),
    (dict(sessions=[SESSION, SESSION | dict(commit='other')]), 'one commit'), (dict(seed=7), 'seeds')])
def test_logs_that_break_a_rule_are_refused(records, changes, message):
    with pytest.raises(UserError, match=message): add(records, records.make_logs('published', [3600] * 5, **changes))
    assert records.read(records.RECORDS) == [] and not (records.HERE / 'logs').exists()

def test_an_entry_without_all_its_seeds_is_listed_last_and_decides_nothing(records):
    add(records, records.make_logs('published', [3600, 3700, 3500, 3650, 3550]))
    add(records, records.make_logs('pre_norm', [1800, 1860]))
    add(records, records.make_logs('higher_rate', [900]))
    text = (records.HERE / 'README.md').read_text()
    published, higher_rate, pre_norm = (line for line in text.split('<!-- records -->')[1].splitlines() if line.startswith('| ['))
    assert '| 5 | 1.00 ± 0.02 |' in published and '| 1 of 5: no record yet | 0.25 |' in higher_rate and '| 2 of 5: no record yet | 0.51 ± 0.01 |' in pre_norm
    assert 'paired' not in text.split('<!-- records -->')[1]
    add(records, records.make_logs('pre_norm', [1800, 1860, 1740, 1850, 1750]))
    assert 'pre_norm beside published, standard hours: 5 seeds, paired, -0.500' in (records.HERE / 'README.md').read_text()

def test_seeds_out_of_the_race_and_files_that_are_no_logs_are_refused(records, tmp_path):
    with pytest.raises(UserError, match='each once'): add(records, records.make_logs('published', [3600])[:1] * 2)
    (tmp_path / 'no.json').write_text('[]')
    with pytest.raises(UserError, match='no.json is not a log'): add(records, [tmp_path / 'no.json'])

def test_costs_and_the_variation_of_the_clock(records, tmp_path):
    "Equal work that takes twice as long beside other work: the standard hour does not vary."
    rows = [dict(step=0, seconds=0., wall_seconds=0., reference=4096., bleu=0.), dict(step=2, seconds=2., wall_seconds=2., reference=4096., bleu=0.), dict(step=4, seconds=4., wall_seconds=4., reference=4096., bleu=0.),
            dict(step=6, seconds=4 + 8 / 3, wall_seconds=4 + 8 / 3, reference=2048., bleu=0.), dict(step=8, seconds=8 + 8 / 3, wall_seconds=8 + 8 / 3, reference=2048., bleu=0.)]
    log, = records.make_logs('published', [0], trial=dict(max_steps=8), reached=False, evaluations=rows, sessions=[SESSION | dict(versions={})])
    records.main(records.p.parse_args(['--cost', str(log), '--clock', str(log)]))
    text = (records.HERE / 'README.md').read_text()
    assert '| published | 8,000 | 1.00 | 2.2 | 11 |' in text and '1.0 to 2.0 wall-clock seconds, coefficient of variation 35 %; in standard seconds it was 0 %' in text

def test_a_page_without_its_marks_is_refused(records):
    with pytest.raises(UserError, match='<!-- entries -->'): records.readme('nothing')

def test_the_page_has_the_tables_of_the_records(speedrun):
    records = load_script('records')
    text = (FOLDER / 'README.md').read_text(encoding='utf-8')
    assert records.readme(text) == text, 'run experiments/speedrun/records.py'
    assert {*records.PREDICTIONS} | {'published'} == {*records.entry_names()}
    for record in records.read(records.RECORDS): assert records.make_record([FOLDER / log for log in record['logs']]) == record
