"experiments/table2.py: which runs are made, what is chosen from them, and what a short time leaves out."
import argparse
import importlib
import sys
import time
from concurrent.futures import Future
import pytest
from helpers import ROOT

@pytest.fixture(scope='module')
def table2():
    sys.path.insert(0, str(ROOT / 'experiments'))
    try: yield importlib.import_module('table2')
    finally: sys.path.remove(str(ROOT / 'experiments'))

class Pool:
    "Runs whose loss is known: lowest at a rate of 0.01, a dropout of 0.3 and a warm-up of 1,600 steps."
    def __init__(self): self.jobs = []
    def submit(self, function, a, system, epochs, seed, final, **changes):
        self.jobs.append((system, epochs, seed, final, *changes.values()))
        future = Future()
        loss = abs(changes['peak_lr'] - .01) + abs(changes['P_drop'] - .3) + (changes['warmup_steps'] != 1600)
        future.set_result(changes | dict(seed=seed, valid_loss=loss))
        return future

def make_schedule(table2, folder, minutes=1e6):
    return table2.Schedule(argparse.Namespace(minutes=minutes, tiny=False, workers=2), table2.ResultCache(folder, {}), Pool())

def test_each_system_is_tuned_alike_and_trained_with_five_seeds(table2, tmp_path):
    schedule = make_schedule(table2, tmp_path)
    found = schedule.run()
    assert [*found] == [*table2.SYSTEMS]
    for system, f in found.items():
        assert f['best'] == dict(peak_lr=.01, P_drop=.3, warmup_steps=1600)
        jobs = [job for job in schedule.pool.jobs if job[0] == system]
        assert sorted((epochs, final) for _, epochs, _, final, *_ in jobs) == [(5, False)] * 4 + [(15, False)] * 4 + [(32, True)] * 5
        assert {seed for _, _, seed, final, *_ in jobs if not final} == {table2.TUNING_SEED}
        assert sorted(run['seed'] for run in f['runs']) == [0, 1, 2, 3, 4]

def test_what_was_made_is_not_made_again(table2, tmp_path):
    first = make_schedule(table2, tmp_path).run()
    schedule = make_schedule(table2, tmp_path, minutes=0)
    assert schedule.run() == first and schedule.pool.jobs == []

def test_a_system_that_is_not_tuned_has_no_runs(table2, tmp_path):
    schedule = make_schedule(table2, tmp_path, minutes=0)
    assert schedule.run() == {} and schedule.pool.jobs == []
    schedule.end = time.time() + 60
    schedule.tune('RNN')
    schedule.end = 0
    assert schedule.run()['RNN'] == dict(tried=schedule.tune('RNN')[0], best=dict(peak_lr=.01, P_drop=.3, warmup_steps=1600), runs=[])

def test_another_machine_goes_on_from_the_record(table2, tmp_path):
    settings = dict(epochs=table2.EPOCHS)
    schedule = make_schedule(table2, tmp_path / 'first')
    found = schedule.run(['RNN', 'ConvS2S'])
    found['ConvS2S']['runs'] = found['ConvS2S']['runs'][:2]
    cache = table2.ResultCache(tmp_path / 'second', {})
    table2.continue_from(dict(systems=found) | settings, settings, cache)
    again = make_schedule(table2, tmp_path / 'second')
    assert again.run(['RNN', 'ConvS2S'])['ConvS2S']['runs'][:2] == found['ConvS2S']['runs']
    assert sorted((job[0], job[2]) for job in again.pool.jobs) == [('ConvS2S', 2), ('ConvS2S', 3), ('ConvS2S', 4)]
    with pytest.raises(SystemExit, match='epochs=32, this command with 5'): table2.continue_from(dict(systems=found) | settings, dict(epochs=5), cache)

def test_no_queued_run_begins_after_the_time(table2, tmp_path):
    schedule = make_schedule(table2, tmp_path)
    submit = schedule.pool.submit
    def ends_the_time(*a, **k):            # later than all have been asked for that are asked for at once
        time.sleep(.2)
        schedule.end = 0
        return submit(*a, **k)
    schedule.tune('RNN')
    schedule.pool.submit = ends_the_time
    schedule.pool.jobs.clear()
    assert len(schedule.system('RNN')['runs']) == len(schedule.pool.jobs) <= schedule.a.workers

def test_all_have_about_as_many_parameters(table2):
    counts = [table2.n_parameters(table2.build_model(recipe.architecture, recipe.model)) for recipe in map(table2.recipe_of, table2.SYSTEMS)]
    assert max(counts) < 1.2 * min(counts)
