"Equation 1 and its heads against a case by hand and PyTorch's, forward and backward; masks, the cache, and what is refused."
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.model.attention import KeyValueCache, MultiHeadAttention, attention, padding_mask, subsequent_mask
from annotated_transformer.model.config import presets

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

def test_by_hand():
    "Scores 1, 0, 3 and values (20, 0), (0, 0), (0, 1)."
    Q, K = torch.tensor([[0., 0, 4, 2]]), torch.tensor([[1., 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 1]])
    out, weights = attention(Q, K, torch.tensor([[20., 0], [0, 0], [0, 1]]))
    total = math.e + 1 + math.e**3
    assert_close(out, torch.tensor([[20 * math.e, math.e**3]]) / total)
    assert_close(weights, torch.tensor([[math.e, 1, math.e**3]]) / total)

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
    if MASKS[mask] is not None:
        allowed = MASKS[mask].expand_as(weights)
        assert (weights[allowed] > 0).all() and not weights[~allowed].any()

@pytest.mark.parametrize('scale', [1, 1e4])
def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients(scale):
    Q, K, V = tensors(*[(1, 4, 4)] * 3)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    out, weights = attention(scale * Q, K, V, mask)
    assert not out[:, 2].any() and not weights[:, 2].any()
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (Q, K, V))

def fused(Q, K, V, mask): return F.scaled_dot_product_attention(Q, K, V, mask)
def written_out(Q, K, V, mask): return attention(Q, K, V, mask)[0]

@pytest.mark.parametrize('f', [written_out, fused])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_a_sentence_of_padding_alone_in_three_precisions(f, dtype):
    "Zeros and no NaN on the way back, written out and fused; a softmax of -inf alone is NaN."
    assert torch.full((3,), -math.inf).softmax(-1).isnan().all()
    inputs = [x.detach().to(dtype).requires_grad_() for x in tensors(*[(2, 4, 8)] * 3)]
    mask = torch.tensor([[True, False, False, True], [False] * 4])[:, None]              # (B, 1, T_k)
    with torch.autograd.set_detect_anomaly(True):
        out = f(*inputs, mask)
        grads = torch.autograd.grad(out.sum(), inputs)
    assert all(x.isfinite().all() and not x[1].any() for x in (out, *grads))

@pytest.mark.parametrize('need_weights', [False, True])
def test_heads_of_a_sentence_of_padding_alone(need_weights):
    "The module gives zeros and finite gradients; PyTorch's gives NaN when it is asked for its weights."
    ids, x = torch.tensor([[5, 6, 7, 0], [0, 0, 0, 0]]), torch.randn(2, 4, 16)
    heads = MultiHeadAttention(16, 4)
    heads.need_weights = need_weights
    out = heads(x, x, x, padding_mask(ids, 0))
    out.square().sum().backward()
    assert not out[1].any() and all(p.grad.isfinite().all() for p in heads.parameters())
    theirs, _ = nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x, key_padding_mask=ids == 0)
    assert theirs[1].isnan().all() and theirs[0].isfinite().all()

@pytest.mark.parametrize('need_weights', [False, True])
def test_no_later_position_is_attended_to(need_weights):
    heads, x = MultiHeadAttention(16, 4), torch.randn(2, 4, 16)
    heads.need_weights, edited = need_weights, x.clone()
    edited[:, 2] += 1
    moved = (heads(edited, edited, edited, subsequent_mask(4)) - heads(x, x, x, subsequent_mask(4))).abs().amax((0, 2)) > 1e-4
    assert moved.tolist() == [False, False, True, True]

@pytest.mark.parametrize('mask', MASKS)
def test_written_out_and_fused_agree(mask):
    "Outputs and the gradients of the matrices, with keys and values of different widths."
    torch.manual_seed(0)
    heads, x = MultiHeadAttention(16, 4, d_k=6, d_v=7).double(), torch.randn(3, 5, 16, dtype=torch.float64)
    results = []
    for heads.need_weights in (True, False):
        out = heads(x, x, x, MASKS[mask])
        results.append([out, *torch.autograd.grad(out.square().sum(), list(heads.parameters()))])
    assert_close(*results, rtol=0, atol=1e-10)

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
    x = tensors((3, 5, 8))[0]
    ours(x, x, x, MASKS[mask])
    assert_close(ours.attn_weights, theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)[1])

def test_without_positions_the_order_of_keys_means_nothing():
    torch.manual_seed(0)
    heads, (x, memory) = MultiHeadAttention(8, 2, d_k=3, d_v=5).double(), tensors((2, 4, 8), (2, 6, 8))
    order = torch.randperm(6)
    assert_close(heads(x, memory, memory), heads(x, memory[:, order], memory[:, order]))
    assert_close(heads(x.flip(1), memory, memory), heads(x, memory, memory).flip(1))

def test_masks():
    assert subsequent_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert padding_mask(torch.tensor([[5, 6, 0], [7, 0, 0]]), 0).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]

@pytest.mark.parametrize('name', ['base', 'B_dk32', 'B_dk16'])
def test_narrow_keys_save_in_two_matrices(name):
    "Rows B of Table 3: the values and the output keep their width."
    c = presets[name]
    heads, (d_k, d_v) = MultiHeadAttention(c.d_model, c.h, c.d_k, c.d_v), c.head_dims
    assert sum(p.numel() for p in heads.parameters()) == 2 * c.d_model * c.h * (d_k + d_v) and d_v == 64
    assert heads(*[torch.zeros(1, 2, c.d_model)] * 3).shape == (1, 2, c.d_model)

def projected_tokens(heads, f):
    "Tokens that W_K turns into keys while `f` runs."
    counts = []
    hook = heads.W_K.register_forward_pre_hook(lambda module, args: counts.append(args[0].size(1)))
    f()
    hook.remove()
    return sum(counts)

def test_a_cache_computes_each_key_once():
    heads, x = MultiHeadAttention(16, 4), torch.randn(2, 4, 16)
    def anew(): return [heads(x[:, t:t + 1], x[:, :t + 1], x[:, :t + 1]) for t in range(4)]
    def cached():
        cache = KeyValueCache()
        return [heads(token, token, token, cache=cache) for token in x.split(1, 1)]
    assert_close(anew(), cached())
    assert_close(torch.cat(cached(), 1), heads(x, x, x, subsequent_mask(4)))
    assert (projected_tokens(heads, anew), projected_tokens(heads, cached)) == (1 + 2 + 3 + 4, 4)

def test_a_cache_of_the_source_is_computed_at_the_first_call():
    heads, x, memory, cache = MultiHeadAttention(16, 4), torch.randn(2, 4, 16), torch.randn(2, 5, 16), KeyValueCache(static_kv=True)
    def cross(): return [heads(token, memory, memory, cache=cache) for token in x.split(1, 1)]
    assert (projected_tokens(heads, cross), projected_tokens(heads, cross)) == (5, 0)
    assert_close(torch.cat(cross(), 1), heads(x, memory, memory))
    cache.reorder(torch.tensor([1, 1]))
    assert_close(cross()[0][0], heads(x[:, :1], memory[[1, 1]], memory[[1, 1]])[0])

@pytest.mark.parametrize('need_weights', [False, True])
def test_dropout_of_weights_acts_in_training_only(need_weights):
    torch.manual_seed(0)
    heads, x = MultiHeadAttention(16, 4, P_attn=.5), torch.randn(2, 4, 16)
    heads.need_weights = need_weights
    assert not torch.equal(heads.train()(x, x, x), heads(x, x, x))
    assert torch.equal(heads.eval()(x, x, x), heads(x, x, x))

@pytest.mark.parametrize('need_weights', [False, True])
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA'))])
def test_bfloat16_stays_within_two_per_cent(device, need_weights):
    torch.manual_seed(0)
    heads, x, mask = MultiHeadAttention(512, 8).to(device), torch.randn(4, 64, 512, device=device), subsequent_mask(64, device)
    heads.need_weights, expected = need_weights, heads(x, x, x, mask)
    with torch.autocast(device, torch.bfloat16): out = heads(x, x, x, mask)
    assert out.dtype == torch.bfloat16
    assert (out.float() - expected).norm() < .02 * expected.norm()

@pytest.mark.parametrize('need_weights', [False, True])
def test_what_is_refused(need_weights):
    x, heads = torch.zeros(1, 3, 8), MultiHeadAttention(8, 2)
    heads.need_weights = need_weights
    with pytest.raises(ValueError, match='h=3 does not divide d_model=8'): MultiHeadAttention(8, 3)
    with pytest.raises(ValueError, match='set both d_k and d_v'): MultiHeadAttention(8, 3, 4)
    assert MultiHeadAttention(8, 3, 4, 4)(x, x, x).shape == x.shape
    with pytest.raises(ValueError, match='3 keys but 2 values'): heads(x, x, x[:, :2])
    with pytest.raises(TypeError, match='must be torch.bool'): heads(x, x, x, torch.zeros(3, 3))
    with pytest.raises(RuntimeError, match='must match the size'): heads(x, x, x, subsequent_mask(4))
