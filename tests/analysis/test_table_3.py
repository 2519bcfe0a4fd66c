"""Table 3 in miniature: its recipes and its names of rows."""
import math

import pytest

from annotated_transformer.analysis.table_3 import TABLE_3, _row_label, table3_recipe
from annotated_transformer.model.config import presets
from annotated_transformer.utils.validation import UserError

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

def test_names_of_rows():
    "By our value; a figure adds the paper's where it differs."
    assert [_row_label(row) for row in ('base', 'A_h4', 'B_dk16', 'E_learned')] == ['base', 'h = 4', 'd_k = 3', 'learned positions']
    assert [_row_label(row, True) for row in ('C_d1024', 'C_N8', 'D_ls0.2', 'A_h1')] == ['$d_{model} = 192$ (paper 1024)', '$N = 4$ (paper 8)', '$ε_{ls} = 0.2$', '$h = 1$']
