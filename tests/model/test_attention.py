"Equation 1 and its heads against PyTorch's, forward and backward, in float64."
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.model.attention import MultiHeadAttention, attention, padding_mask, subsequent_mask

LENGTHS = torch.tensor([5, 3, 1])
MASKS = dict(none=None, causal=subsequent_mask(5), padding=(torch.arange(5) < LENGTHS[:, None])[:, None, None, :])

def tensors(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

def both(f, g, inputs):
    "The values of two functions, and the gradients of a random sum of each."
    torch.manual_seed(1)
    ours, theirs = f(*inputs), g(*inputs)
    weight = torch.randn_like(ours)
    assert_close(ours, theirs)
    assert_close(*(torch.autograd.grad((y * weight).sum(), inputs) for y in (ours, theirs)))

@pytest.mark.parametrize('mask', MASKS)
@pytest.mark.parametrize('d_k, d_v', [(8, 8), (3, 11), (1, 1)])
def test_equation_1(mask, d_k, d_v):
    inputs = tensors((3, 2, 5, d_k), (3, 2, 5, d_k), (3, 2, 5, d_v))
    both(lambda Q, K, V: attention(Q, K, V, MASKS[mask])[0], lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, MASKS[mask]), inputs)

@pytest.mark.parametrize('mask', MASKS)
def test_weights_are_a_distribution_over_what_may_be_seen(mask):
    Q, K, V = tensors(*[(3, 2, 5, 4)] * 3)
    _, weights = attention(Q, K, V, MASKS[mask])
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    if MASKS[mask] is not None: assert not weights.masked_select(~MASKS[mask].expand_as(weights)).any()

@pytest.mark.parametrize('scale', [1, 1e4])
def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients(scale):
    Q, K, V = tensors(*[(1, 4, 4)] * 3)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    out, weights = attention(scale * Q, K, V, mask)
    assert not out[:, 2].any() and not weights[:, 2].any()
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (Q, K, V))

@pytest.mark.parametrize('mask', MASKS)
@pytest.mark.parametrize('h', [1, 2, 4])
def test_heads_against_pytorch_with_copied_weights(mask, h):
    torch.manual_seed(0)
    ours, theirs = MultiHeadAttention(8, h).double(), nn.MultiheadAttention(8, h, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.W_Q.weight, ours.W_K.weight, ours.W_V.weight]))
        theirs.out_proj.weight.copy_(ours.W_O.weight)
    hidden = None if MASKS[mask] is None else (~MASKS[mask]).expand(3, h, 5, 5).flatten(0, 1)          # True there: may not be seen
    for keep in False, True:
        ours.need_weights = keep
        both(lambda q, k, v: ours(q, k, v, MASKS[mask]), lambda q, k, v: theirs(q, k, v, attn_mask=hidden, need_weights=False)[0], tensors((3, 5, 8), (3, 5, 8), (3, 5, 8)))

def test_without_positions_the_order_of_keys_means_nothing():
    torch.manual_seed(0)
    heads, (x, memory) = MultiHeadAttention(8, 2, d_k=3, d_v=5).double(), tensors((2, 4, 8), (2, 6, 8))
    order = torch.randperm(6)
    assert_close(heads(x, memory, memory), heads(x, memory[:, order], memory[:, order]))

def test_masks():
    assert subsequent_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert padding_mask(torch.tensor([[5, 6, 0], [7, 0, 0]]), 0).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]

def test_what_is_refused():
    x = torch.zeros(1, 3, 8)
    with pytest.raises(ValueError, match='h=3 does not divide d_model=8'): MultiHeadAttention(8, 3)
    with pytest.raises(ValueError, match='3 keys but 2 values'): MultiHeadAttention(8, 2)(x, x, x[:, :2])
    with pytest.raises(TypeError, match='must be torch.bool'): MultiHeadAttention(8, 2)(x, x, x, torch.zeros(3, 3))
