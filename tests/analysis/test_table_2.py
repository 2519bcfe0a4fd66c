"Table 2 in miniature: the recipes of its systems, their search, and the operations of a step."
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from annotated_transformer.model.flops import train_flops
from annotated_transformer.analysis.table_2 import _MODEL_FAMILIES, _count_step_flops, bleu_by_length
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import build_model, incremental_logits
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

@pytest.fixture(params=_MODEL_FAMILIES)
def tiny(request):
    "A small model of a family with large random weights, in double precision."
    recipe = get_recipe(request.param)
    small = dict(vocab_size=6, P_drop=0., d_model=8)
    if isinstance(recipe.model, TransformerConfig): small |= dict(d_k=2, d_v=2, d_ff=8)
    torch.manual_seed(2)
    model = build_model(recipe.architecture, replace(recipe.model, **small)).double().eval()
    for p in model.parameters(): nn.init.normal_(p, std=.5)
    return model

def test_every_family_decodes_token_by_token_as_it_is_trained(tiny):
    "In a batch with padding, too."
    src = torch.tensor([[4, 3, 5, 2], [5, 4, 2, 0], [3, 2, 0, 0]])
    tgt = torch.randint(3, 6, (3, 7))
    tgt[:, 0] = 1
    torch.testing.assert_close(incremental_logits(tiny, src, tgt), tiny(src, tgt), rtol=0, atol=1e-9)

@torch.no_grad()
def test_one_beam_search_finds_the_best_of_all_translations_in_every_family(tiny):
    "A beam wide enough to hold everything, and all 40 targets of fewer than four tokens: bos 1, eos 2."
    src, log_probs = torch.tensor([[4, 3, 5, 2]]), {}
    for y in (y for T in range(4) for y in product((3, 4, 5), repeat=T)):
        log_p = tiny(src, torch.tensor([[1, *y]])).log_softmax(-1)[0]
        log_probs[y] = log_p[range(len(y) + 1), [*y, 2]].sum().item()
    found, = beam_search(tiny, src, 200, alpha=0., max_extra_tokens=0, n_best=1, bos_id=1, eos_id=2)[0]
    assert tuple(found.ids) == max(log_probs, key=log_probs.get)
    assert found.log_prob == pytest.approx(log_probs[tuple(found.ids)], abs=1e-9)
