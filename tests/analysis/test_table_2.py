"Table 2 in miniature: the recipes of its systems, and the operations of a step."
from dataclasses import replace

import pytest
import torch

from annotated_transformer.analysis.hardware import train_flops
from annotated_transformer.analysis.table_2 import _MODEL_FAMILIES, _count_step_flops, bleu_by_length
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.recipe import flatten_recipe, get_recipe

def shared_settings(recipe):
    "All fields but those of the model and the peak of the rate."
    own = {'architecture', 'peak_lr', *vars(recipe.model)}
    return {name: value for name, value in flatten_recipe(recipe).items() if name not in own}

@pytest.mark.parametrize('name', _MODEL_FAMILIES)
def test_recipes_differ_in_the_model_and_the_rate_alone(name):
    "Every family has the Transformer's training, and refuses an impossible field."
    assert shared_settings(get_recipe(name)) == shared_settings(get_recipe('transformer_tiny'))
    assert get_recipe(name).model.P_drop == .2
    with pytest.raises(ValueError, match='P_drop'): get_recipe(name, P_drop=2.)

def step_flops(name, **model_fields):
    recipe = get_recipe(name)
    model = build_model(recipe.architecture, replace(recipe.model, P_drop=0., **model_fields))
    return _count_step_flops(model, torch.randint(3, 4000, (32, 16)), torch.randint(3, 4000, (32, 17)))

def test_counted_operations_agree_with_the_formula():
    "Within two per cent for the Transformer."
    assert step_flops('transformer_tiny') == pytest.approx(float(train_flops(get_recipe('transformer_tiny').model, 32, 16, 16)), rel=.02)

def test_an_lstm_is_refused():
    "The counter does not see its fused products."
    with pytest.raises(ValueError, match='nn.LSTM cannot be counted'): step_flops('rnn_tiny', cell='lstm')

def test_a_bin_without_sentences_has_no_score():
    "The lower edge belongs to a bin, the upper one does not."
    short, empty, long = bleu_by_length(['a b', 'a b c d'], ['x y z w', 'k l m n'], ['x y z w', 'k l m q'], [0, 3, 4, 9])
    assert short == pytest.approx(100) and empty != empty and long == 0
