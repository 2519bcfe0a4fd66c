"Equation 2: by hand, position by position, as keys and values, and its share of the parameters."
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import count_parameters, presets
from annotated_transformer.model.feed_forward import FeedForward
from annotated_transformer.model.layers import Stack

def network_and_input():
    torch.manual_seed(0)
    return FeedForward(8, 32), torch.randn(2, 5, 8)

def size(module): return sum(p.numel() for p in module.parameters())

def test_by_hand():
    "Units 1, 1 and -1; the last is cut to 0."
    network = FeedForward(2, 3)
    network.load_state_dict({'W_1.weight': torch.tensor([[1., 0], [-1, 1], [2, -1]]), 'W_1.bias': torch.tensor([0., 0, -1]),
                             'W_2.weight': torch.tensor([[1., 0, 50], [0, 2, 50]]), 'W_2.bias': torch.tensor([.5, 0])})
    assert network(torch.tensor([1., 2])).tolist() == [1.5, 2]

def test_every_position_by_itself():
    network, x = network_and_input()
    order = torch.randperm(5)
    assert_close(network(x), nn.Sequential(network.W_1, nn.ReLU(), network.W_2)(x))
    assert_close(network(x), torch.stack([network(x[:, t]) for t in range(5)], 1))
    assert_close(network(x[:, order]), network(x)[:, order])
    with pytest.raises(RuntimeError, match='cannot be multiplied'): network(torch.randn(2, 5, 7))

def test_without_the_relu_two_layers_are_one():
    (network, x), one = network_and_input(), nn.Linear(8, 8)
    with torch.no_grad():
        one.weight.copy_(network.W_2.weight @ network.W_1.weight)
        one.bias.copy_(network.W_2(network.W_1.bias))
    assert_close(network.W_2(network.W_1(x)), one(x))
    assert not torch.allclose(network(x), one(x))

def test_layers_share_nothing():
    (network, x), stack = network_and_input(), Stack(lambda: FeedForward(8, 32), N=2)
    assert size(stack) == 2 * size(network)
    assert not torch.allclose(stack.layers[0](x), stack.layers[1](x))

def test_before_training_half_of_the_units_are_active_and_only_these_learn():
    torch.manual_seed(0)
    network, words = FeedForward(512, 2048), torch.randn(3, 512)
    active = network.W_1(words) > 0
    network(words[0]).sum().backward()
    assert ((active.float().mean(-1) - .5).abs() < .05).all()
    assert abs((active[0] == active[2]).float().mean() - .5) < .05
    assert torch.equal((network.W_1.weight.grad != 0).any(-1), active[0])

def test_columns_are_keys_and_rows_are_values():
    network, x = network_and_input()
    keys, values = network.W_1.weight, network.W_2.weight.T
    assert_close((x @ keys.T + network.W_1.bias).relu() @ values + network.W_2.bias, network(x))

def test_twice_the_matrices_of_attention():
    network = FeedForward(512, 2048)
    assert size(network) == 2 * 512 * 2048 + 2048 + 512
    assert sum(p.numel() for p in network.parameters() if p.ndim == 2) == 2 * size(MultiHeadAttention(512, 8))

@pytest.mark.parametrize('name', ['C_dff1024', 'C_dff4096'])
def test_rows_c_change_nothing_else(name):
    base, row = presets['base'], presets[name]
    assert count_parameters(row) - count_parameters(base) == 2 * base.N * (2 * base.d_model + 1) * (row.d_ff - base.d_ff)
