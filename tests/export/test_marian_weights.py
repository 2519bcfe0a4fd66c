"Marian's names and order: no parameter is lost, and the order of coordinates changes nothing."
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.export.marian_weights import _marian_modules, _marian_permutation, _marian_state_dict
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.positional_encoding import positional_encoding
from annotated_transformer.model.transformer import Transformer

CONFIG = TransformerConfig(vocab_size=60, N=1, d_model=64, d_ff=128)

@pytest.mark.parametrize('tied', [True, False])
def test_every_module_has_a_name(tied):
    "Each of our modules with parameters, and no name twice."
    model = Transformer(TransformerConfig(vocab_size=60, N=2, d_model=64, d_ff=128, tie_embeddings=tied))
    modules = _marian_modules(2, tied)
    assert set(modules) == {n.rpartition('.')[0] for n, _ in model.named_parameters()}
    assert len({theirs for theirs, _ in modules.values()}) == len(modules)

def test_sines_come_first():
    "Our encoding has sines and cosines by turns, Marian's the sines before the cosines."
    assert _marian_permutation(6).tolist() == [0, 2, 4, 1, 3, 5]
    first = positional_encoding(1, 8)[..., _marian_permutation(8)].flatten()           # of position 0
    assert first.tolist() == [0.] * 4 + [1.] * 4

def test_the_order_of_coordinates_changes_nothing():
    "A layer with permuted weights gives the permuted output for permuted vectors."
    torch.manual_seed(0)
    layer, modules = Transformer(CONFIG).eval().encoder.layers[0], _marian_modules(1, True)
    x, order = torch.randn(2, 5, 64), _marian_permutation(64)
    with torch.no_grad():
        expected = layer(x)[..., order]
        for name, p in layer.named_parameters():
            module, _, kind = name.rpartition('.')
            way = modules[f'encoder.layers.0.{module}'][1]
            if way == 'writes': p.copy_(p[order].clone())
            elif kind == 'weight': p.copy_(p[:, order].clone())
        assert_close(layer(x[..., order]), expected, rtol=1e-4, atol=1e-5)

def test_a_parameter_that_marian_does_not_have():
    model = Transformer(CONFIG)
    model.encoder.layers[0].self_attn.gate = nn.Linear(64, 64)
    with pytest.raises(ValueError, match='has no encoder.layers.0.self_attn.gate.weight'): _marian_state_dict(model)

def test_back_again():
    "The inverse mapping gives every parameter back, bit by bit."
    model = Transformer(CONFIG)
    converted, back, restored = _marian_state_dict(model), _marian_permutation(64).argsort(), {}
    for ours, (theirs, way) in _marian_modules(1, True).items():
        for kind in 'weight', 'bias':
            p = converted.get(f'{theirs}.{kind}')
            if p is None or theirs.endswith('_proj') and kind == 'bias': continue
            restored[f'{ours}.{kind}'] = p[back] if way == 'writes' else p[:, back] if kind == 'weight' else p
    parameters = dict(model.named_parameters())
    assert set(restored) == set(parameters)
    assert all(restored[name].equal(p) for name, p in parameters.items())
