"Dropout is where §5.4 has it: each place acts, and nothing else does."
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.model.config import presets
from annotated_transformer.model.feed_forward import FeedForward
from annotated_transformer.model.transformer import Transformer

NARROW = replace(presets['base'], vocab_size=50, d_model=32, d_ff=64, d_k=4, d_v=4)
PLACES = [f'{side}_position.dropout' for side in ('src', 'tgt')] + [
    f'{stack}.layers.{i}.add_norm.{j}.dropout' for stack, n in dict(encoder=2, decoder=3).items() for i in range(6) for j in range(n)]

def make_model():
    torch.manual_seed(0)
    return Transformer(NARROW), torch.randint(1, 50, (2, 7)), torch.randint(1, 50, (2, 5))

@torch.no_grad()
def run(model, src, tgt): return model(src, tgt)

def test_each_place_acts_alone():
    "With everything dropped at one place and nothing elsewhere the logits differ from those of evaluation."
    model, *batch = make_model()
    evaluated = run(model.eval(), *batch)
    dropouts = {name: m for name, m in model.train().named_modules() if isinstance(m, nn.Dropout)}
    assert set(PLACES) <= set(dropouts)
    for m in dropouts.values(): m.p = 0.
    assert_close(run(model, *batch), evaluated)
    for name in PLACES:
        dropouts[name].p = 1.
        assert (run(model, *batch) - evaluated).abs().max() > .01, name
        dropouts[name].p = 0.

@pytest.mark.parametrize('left_out', [None, *PLACES[::8]])
def test_nothing_else_draws_random_numbers(left_out):
    "The generator does not move while all places are silenced, and moves if one is left out."
    model, *batch = make_model()
    for name, m in model.train().named_modules():
        if name in PLACES and name != left_out: m.eval()
    state = torch.get_rng_state()
    run(model, *batch)
    assert torch.equal(state, torch.get_rng_state()) == (left_out is None)

def test_evaluation_is_deterministic_and_training_is_not():
    model, *batch = make_model()
    assert not torch.equal(run(model.train(), *batch), run(model, *batch))
    assert torch.equal(run(model.eval(), *batch), run(model, *batch))

def test_dropout_gets_the_output_of_the_feed_forward_network():
    "And not of something inside of it."
    (model, *batch), calls = make_model(), {}
    for name, m in model.train().named_modules():
        if name in PLACES: m.register_forward_hook(lambda m, x, y, name=name: calls.update({name: (x[0], y)}))
    run(model, *batch)
    layer, first = model.encoder.layers[0], 'encoder.layers.0.add_norm'
    x = layer.add_norm[0].norm(calls['src_position.dropout'][1] + calls[f'{first}.0.dropout'][1])
    assert_close(calls[f'{first}.1.dropout'][0], layer.feed_forward(x).detach())

def test_no_preset_has_dropout_that_the_paper_does_not_mention():
    "Neither on attention weights nor inside the feed-forward network; rows D of Table 3 are base with another rate."
    assert {c.P_attn for c in presets.values()} == {0.}
    assert not any(isinstance(m, nn.Dropout) for m in FeedForward(32, 64).modules())
    for name in 'D_drop0', 'D_drop0.2', 'D_ls0', 'D_ls0.2': assert replace(presets[name], P_drop=.1, eps_ls=.1) == presets['base']
