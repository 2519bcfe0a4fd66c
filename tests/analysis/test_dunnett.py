"""Many rows beside one base: Dunnett's intervals beside Student's, hand-worked cases and planted losses."""
import math

import numpy as np
import pytest
from scipy import stats

from annotated_transformer.analysis.dunnett import _dunnett_intervals, _pooled_sd, _tost_p, _verdicts

def around(mean, step=.001): return [mean - step, mean + step]

def test_dunnett_of_one_row_is_students_interval():
    "With two groups nothing is to be corrected."
    losses = dict(base=[2., 2.01, 2.02, 1.99], A_h1=[2.05, 2.07, 2.06])
    student = stats.ttest_ind(losses['A_h1'], losses['base']).confidence_interval(.975)
    difference, *limits = _dunnett_intervals(losses)['A_h1']
    assert difference == pytest.approx(.055)
    assert limits == pytest.approx([student.low, student.high], rel=.03)     # scipy integrates by sampling

def test_pooled_deviation_and_equivalence_by_hand():
    "Deviations of ±1 around two means, two and three seeds; TOST beside Student's one-sided test."
    losses = dict(base=[9., 11.], A_h1=[10., 9., 11.])
    assert _pooled_sd(losses) == (pytest.approx(math.sqrt(4 / 3)), 3)
    assert _tost_p(losses, 'A_h1', margin=0.) == pytest.approx(.5)
    below = stats.ttest_ind(np.add(losses['A_h1'], -1), losses['base'], alternative='less')
    assert _tost_p(losses, 'A_h1', margin=1.) == pytest.approx(below.pvalue)
    assert _tost_p(losses, 'A_h1', margin=10.) < .01

def test_each_verdict_can_be_had():
    "Four phrases from planted losses."
    expected = dict(A_h1='worse', C_N4='worse', A_h4='alike', C_N8='better')
    losses = dict(base=[2., 2.001, 1.999, 2.], A_h1=around(2.1), C_N4=around(1.9), A_h4=around(2.001), C_N8=around(2.002))
    assert _verdicts(losses, expected) == dict(
        A_h1='as expected', C_N4='the other way', A_h4='as expected', C_N8='no difference that matters')
    assert _verdicts(losses | dict(C_N8=[1.9, 2.05]), expected)['C_N8'] == 'undecided'

def test_a_row_with_one_seed_is_named():
    with pytest.raises(ValueError, match='A_h1 has fewer'): _dunnett_intervals(dict(base=[1., 2.], A_h1=[1.]))
