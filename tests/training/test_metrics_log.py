"The log of a run: means over tokens, the step of a loss that is not a number, validations, what a resumed run deletes."
import math

import pytest
import torch
from accelerate import Accelerator
from matplotlib import pyplot as plt

from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training import metrics_log
from annotated_transformer.training.metrics_log import MetricsLogger, plot_metrics
from annotated_transformer.utils.validation import NonFiniteError


@pytest.fixture
def log(tmp_path):
    with MetricsLogger(tmp_path, 0, 40, 10, Accelerator(cpu=True)) as log: yield log

def update(log, *steps):
    for step, loss, num_tokens in steps: log.update(step, torch.tensor(loss), num_tokens, torch.tensor(float(step)))

def test_the_mean_is_over_tokens(log, tmp_path):
    "Two batches of 10 and 90 tokens with mean losses of 5 and 1: 1.4, not 3."
    update(log, (1, 50., 10), (2, 90., 90))
    log.log_train(lr=1.)
    line, = RunDirectory(tmp_path).metrics()
    assert (line['step'], line['lr'], line['grad_norm']) == (2, 1., 1.5) and line['loss'] == pytest.approx(1.4)
    assert log.buffer == []

@pytest.mark.parametrize('flops, busy', [((1e12, 3e12), True), ((1e12, 0.), False)])
def test_the_share_of_the_peak(tmp_path, monkeypatch, flops, busy):
    "4e12 FLOPs in two seconds on a GPU of 1e13 FLOP/s: 20 %; none if the operations of a step are not counted."
    monkeypatch.setattr(metrics_log, 'peak_flops', lambda device: 1e13)
    clock = iter([0., 2., 2.])
    monkeypatch.setattr(metrics_log.time, 'perf_counter', lambda: next(clock))
    with MetricsLogger(tmp_path, 0, 40, 10, Accelerator(cpu=True)) as log:
        for step, n in enumerate(flops, 1): log.update(step, torch.tensor(1.), 10, torch.tensor(1.), n)
        log.log_train(lr=1.)
    line, = RunDirectory(tmp_path).metrics()
    assert line['tokens_per_s'] == 10 and line.get('mfu') == (pytest.approx(.2) if busy else None)

def test_no_share_of_the_peak_on_a_cpu(log, tmp_path):
    log.update(1, torch.tensor(1.), 10, torch.tensor(1.), 1e12)
    log.log_train(lr=1.)
    assert 'mfu' not in RunDirectory(tmp_path).metrics()[0]

def test_lines_are_appended(log, tmp_path):
    log.write(1, loss=2.)
    log.write(2, loss=1.)
    assert [line['step'] for line in RunDirectory(tmp_path).metrics()] == [1, 2]

def test_a_loss_that_is_not_a_number(log, tmp_path):
    "Its step, batch and epoch are named, and no line is written."
    update(log, (11, 1., 3), (12, math.nan, 3))
    with pytest.raises(NonFiniteError, match=r'loss of step 12 \(batch 2 of epoch 2\) is nan'): log.log_train(.001)
    assert RunDirectory(tmp_path).metrics() == []

def test_the_best_validation(log):
    assert log.validations_since_best == 0
    assert [log.log_validation(step, loss, .5) for step, loss in enumerate((3., 2., 2.5, 2.))] == [True, True, False, False]
    assert log.validations_since_best == 2

def test_lines_of_later_steps_are_deleted(tmp_path):
    "As is a line that was cut off; validations before the resumed step count."
    (tmp_path / 'metrics.jsonl').write_text('{"step": 10, "valid_loss": 3.0}\n{"step": 20, "loss": 2.0}\n{"step": 30, "lo')
    with MetricsLogger(tmp_path, 10, 40, 10, Accelerator(cpu=True)) as log: assert log.valid_losses == [3.]
    assert (tmp_path / 'metrics.jsonl').read_text() == '{"step": 10, "valid_loss": 3.0}\n'

def test_two_curves(tmp_path):
    (tmp_path / 'metrics.jsonl').write_text('{"step": 1, "loss": 4}\n{"step": 2, "loss": 3, "valid_loss": 2}\n')
    ax = plot_metrics(tmp_path)
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[1, 4], [2, 3]], [[2, 2]]]
    plt.close(ax.figure)
