"experiments/table3.py: how the base of all rows is tuned."
import argparse
import importlib
import sys
from types import SimpleNamespace
import pytest
from annotated_transformer.utils.validation import NonFiniteError
from helpers import ROOT

@pytest.fixture
def table3(monkeypatch):
    "The script, with trainings whose loss is known: lowest with pre-norm, equation 3's rate and the long warm-up; pre-norm diverges at 0.01."
    monkeypatch.setattr(sys, 'path', [str(ROOT / 'experiments'), *sys.path])
    script, losses = importlib.import_module('table3'), {}
    script.trained = []
    def train(recipe, corpus, run, data, resume):
        norm, schedule = recipe.model.norm, recipe.schedule
        script.trained.append((norm, schedule.peak_lr, schedule.warmup_steps, recipe.seed))
        if (norm, schedule.peak_lr) == ('pre', .01): raise NonFiniteError('the loss is nan')
        losses[run] = (norm == 'post') + abs((schedule.peak_lr or .0051) - .0051) + .01 * (schedule.warmup_steps == 400)
    monkeypatch.setattr(script, 'train', train)
    monkeypatch.setattr(script, 'RunDirectory', lambda run: SimpleNamespace(metrics=lambda: [dict(valid_loss=losses[run])]))
    return script

def test_norm_and_rate_first_then_a_longer_warmup(table3, tmp_path):
    a = argparse.Namespace(changes=dict(max_steps=2000), corpus='multi30k', data=None)
    best = dict(norm='pre', peak_lr=None, warmup_steps=table3.LONG_WARMUP)
    assert table3.tune(tmp_path, tmp_path, a) == best
    assert len(table3.trained) == 5 and {seed for *_, seed in table3.trained} == {table3.TUNING_SEED}
    assert table3.trained[-1] == ('pre', None, table3.LONG_WARMUP, table3.TUNING_SEED)
    assert table3.tune(tmp_path, tmp_path, a) == best and len(table3.trained) == 5      # what was tried is not tried again

def test_the_cost_of_the_paper_is_estimated_without_data(table3, capsys):
    "One line a row; a smaller model takes fewer hours than base, a wider one more."
    table3.estimate(table3.select_rows('A,B,C,D,E'), argparse.Namespace(scale='paper', changes={}))
    hours = {words[0]: float(words[-1]) for line in capsys.readouterr().out.splitlines() if (words := line.split())[0] in table3.TABLE_3}
    assert len(hours) == len(table3.TABLE_3) and hours['C_N2'] < hours['base'] < hours['C_d1024']
