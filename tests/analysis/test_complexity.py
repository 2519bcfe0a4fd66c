"The layers of Table 1 and the measures taken of them: against PyTorch's layers, masked attention and counts by hand."
from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated_transformer.analysis.complexity import _LAYER_TYPES, SelfAttention, _CausalConv1d, _RecurrentLayer, restricted_attention
from annotated_transformer.analysis.path_length import receptive_field, sequential_operations
from annotated_transformer.model.attention import MultiHeadAttention, attention
from annotated_transformer.model.feed_forward import FeedForward

def near(n, r):
    "(n, n): True where two positions are in one neighbourhood."
    i = torch.arange(n)
    return (i[:, None] - i).abs() <= r // 2

def flops(layer, x):
    "Operations in the products of layer(x), by kind."
    with FlopCounterMode(display=False) as counter: layer(x)
    return {op.__name__: n for op, n in counter.get_flop_counts()['Global'].items()}

@pytest.mark.parametrize('r', [1, 3, 9, 33])
@pytest.mark.parametrize('n', [1, 2, 9, 16, 100])
def test_restricted_attention_equals_masked_attention(n, r):
    "Also where r is wider than the sequence or does not divide it, and in the gradients."
    torch.manual_seed(0)
    Q, K, V = torch.randn(3, 2, 4, n, 8).requires_grad_().unbind()
    outputs = restricted_attention(Q, K, V, r), attention(Q, K, V, near(n, r))[0]
    assert_close(*outputs, rtol=0, atol=1e-5)
    weight = torch.randn_like(outputs[0])
    assert_close(*(torch.autograd.grad((out * weight).sum(), (Q, K, V)) for out in outputs), rtol=0, atol=1e-5)

def test_an_even_neighbourhood_is_refused():
    "A neighbourhood has its position in the middle."
    with pytest.raises(ValueError, match='r=4'): restricted_attention(*torch.randn(3, 1, 9, 8), 4)

@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
def test_restricted_attention_equals_flex_attention():
    "A fused kernel compiled from the mask gives the same band, and skips most blocks."
    Q, K, V = torch.randn(3, 1, 8, 8192, 64, device='cuda')
    window = create_block_mask(lambda b, h, i, j: (i - j).abs() <= 257 // 2, None, None, 8192, 8192, device='cuda')
    assert window.sparsity() > 90                        # percent of the blocks
    with torch.no_grad(): flex = torch.compile(flex_attention)(Q, K, V, block_mask=window)
    assert_close(flex, restricted_attention(Q, K, V, 257), rtol=0, atol=1e-3)

def test_self_attention_is_multi_head_attention_with_one_head():
    "Full and restricted."
    torch.manual_seed(0)
    x, layer, reference = torch.randn(2, 10, 8), SelfAttention(8), MultiHeadAttention(8, h=1)
    reference.load_state_dict(layer.state_dict())
    assert_close(layer(x), reference(x, x, x))
    layer.r = 5
    assert_close(layer(x), reference(x, x, x, near(10, 5)))

@pytest.mark.parametrize('cell, compiled', [(nn.RNNCell, nn.RNN), (nn.LSTMCell, nn.LSTM)])
def test_recurrent_layer_equals_pytorchs(cell, compiled):
    "The loop of cells gives what the compiled layer gives."
    torch.manual_seed(0)
    x, cell, compiled = torch.randn(2, 10, 8), cell(8, 8), compiled(8, 8, batch_first=True)
    compiled.load_state_dict({f'{name}_l0': value for name, value in cell.state_dict().items()})
    assert_close(_RecurrentLayer(cell)(x), compiled(x)[0])

def test_dilated_convolution_by_hand():
    "With a kernel of ones and a dilation of 2 an output is its input plus the one two before."
    conv = _CausalConv1d(1, k=2, dilation=2)
    with torch.no_grad():
        conv.conv.weight.fill_(1)
        conv.conv.bias.zero_()
    assert conv(torch.tensor([1., 2, 3, 4, 5])[None, :, None]).flatten().tolist() == [1, 2, 3 + 1, 4 + 2, 5 + 3]

@pytest.mark.parametrize('name', _LAYER_TYPES)
def test_layers_keep_the_shape_and_reach_where_the_jacobian_is_not_zero(name):
    "Two layers of each type, against the full matrix of derivatives."
    torch.manual_seed(0)
    assert _LAYER_TYPES[name](8, 3)(torch.randn(2, 10, 8)).shape == (2, 10, 8)
    pair = [_LAYER_TYPES[name](4, 3, l).double() for l in range(2)]
    *_, reached = islice(receptive_field(pair.__getitem__, 7), 2)
    jacobian = torch.autograd.functional.jacobian(nn.Sequential(*pair), torch.randn(1, 7, 4, dtype=torch.float64))[0, :, :, 0]
    assert reached.tolist() == (jacobian != 0).any(1).any(-1).tolist()          # (n, d, n, d) to (n, n)

def test_receptive_field_of_a_convolution_by_hand():
    "With k = 3 the last of five outputs sees three inputs after one layer and all after two."
    after = [seen[-1].tolist() for seen in islice(receptive_field(lambda l: _LAYER_TYPES['convolution'](4, 3), 5), 2)]
    assert after == [[False, False, True, True, True], [True] * 5]

def test_sequential_operations_by_hand():
    "(xA)A takes two products in a row, beside which xA can run; a fused attention counts its two."
    torch.manual_seed(0)
    A, x = torch.randn(8, 8), torch.randn(2, 10, 8)
    assert sequential_operations(lambda x: x @ A @ A + x @ A, x) == 2
    assert sequential_operations(lambda x: x.relu() + 1, x) == 0
    assert sequential_operations(lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3), x) == 2

def test_share_of_the_quadratic_term_in_a_layer():
    "n / (n + 6d) of the operations of attention and feed-forward; with a neighbourhood it does not depend on n."
    n, d = 48, 16
    layer, x = SelfAttention(d), torch.randn(1, n, d)
    assert_close(flops(layer, x)['bmm'] / sum(flops(nn.Sequential(layer, FeedForward(d, 4 * d)), x).values()), n / (n + 6 * d))
    windowed = [flops(SelfAttention(16, r=9), torch.randn(1, n, 16)) for n in (90, 900)]
    assert windowed[0]['bmm'] / windowed[0]['mm'] == windowed[1]['bmm'] / windowed[1]['mm']

def test_operations_of_convolutions():
    "k = 3: half as many again as a plain cell; a separable convolution takes 2knd + 2nd²."
    x = torch.randn(1, 64, 32)
    conv, cell = (sum(flops(_LAYER_TYPES[name](32, 3), x).values()) for name in ('convolution', 'recurrent'))
    assert conv == 1.5 * cell
    for n, d, k in (64, 16, 3), (64, 16, 63), (100, 8, 100):
        parts = _LAYER_TYPES['separable convolution'](d, k)
        assert [flops(part, torch.randn(1, n, d))['convolution'] for part in parts] == [2 * k * n * d, 2 * n * d**2]
