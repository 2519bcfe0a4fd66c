"""Table 3 in miniature: its recipes, and its statistics beside Student's interval, hand-worked cases and planted losses."""
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from annotated_transformer.analysis.table_3 import (
    TABLE_3, _dunnett_intervals, _effective_rank, _pooled_sd, _tost_p, _verdicts, table3_recipe)
from annotated_transformer.model.config import presets
from annotated_transformer.utils.validation import UserError

def around(mean, step=.001): return [mean - step, mean + step]

@pytest.mark.parametrize('row', TABLE_3)
def test_each_row_at_both_sizes(row):
    "At the paper's size a row is its preset; at ours only base is base, and other fields stay free."
    assert table3_recipe(row, 'paper').model == presets[row]
    assert (table3_recipe(row) == table3_recipe('base')) == (row == 'base')
    assert table3_recipe(row, seed=3).seed == table3_recipe(row, 'paper', seed=3).seed == 3
    assert table3_recipe(row, seed=3).model == table3_recipe(row).model

def test_widths_of_heads():
    "One head has the whole width; a wider model has wider heads, not more."
    one, wide = table3_recipe('A_h1').model, table3_recipe('C_d1024').model
    assert (one.h, one.head_dims[0], wide.h, wide.head_dims[0]) == (1, 96, 8, 24)

def test_seven_effects_of_the_paper_are_below_the_margin():
    "Of the paper's eighteen effects seven are smaller than 0.03 nats."
    effects = [abs(math.log(v.ppl / TABLE_3['base'].ppl)) for row, v in TABLE_3.items() if row != 'base']
    assert len(effects) == 18 and sum(e < .03 for e in effects) == 7

def test_unknown_rows_and_scales():
    "What is refused is named."
    with pytest.raises(UserError, match="unknown row 'F' of Table 3: use one of base, A_h1"): table3_recipe('F')
    with pytest.raises(ValueError, match="scale='huge': use 'mini' or 'paper'"): table3_recipe('base', 'huge')
    with pytest.raises(ValueError, match='A_h1 has fewer'): _dunnett_intervals(dict(base=[1., 2.], A_h1=[1.]))

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

def test_effective_rank():
    "Equal singular values count fully, unequal ones by their entropy; the softmax hides nothing but a constant for each row."
    torch.manual_seed(0)
    turned = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    centred = torch.linalg.qr((torch.eye(8) - 1 / 8).double())[0][:, :7]     # columns that sum to zero
    assert_close(centred.sum(0), torch.zeros(7).double())
    assert _effective_rank((turned[:, :5] @ centred[:, :5].T).softmax(-1)).item() == pytest.approx(5)
    uneven = turned[:, :2] * torch.tensor([3, 1]).sqrt() @ centred[:, :2].T  # shares ¾ and ¼
    assert _effective_rank(uneven.softmax(-1)).item() == pytest.approx(.75 ** -.75 * .25 ** -.25)
    assert _effective_rank((torch.randn(3, 8, 2) @ torch.randn(3, 2, 8)).softmax(-1)).max() < 3

def test_each_verdict_can_be_had():
    "Four phrases from planted losses, with the expectations of the table."
    losses = dict(base=[2., 2.001, 1.999, 2.], A_h1=around(2.1), C_N4=around(1.9), A_h4=around(2.001), C_N8=around(2.002))
    assert _verdicts(losses) == dict(
        A_h1='as expected', C_N4='the other way', A_h4='as expected', C_N8='no difference that matters')
    assert _verdicts(losses | dict(C_N8=[1.9, 2.05]))['C_N8'] == 'undecided'
