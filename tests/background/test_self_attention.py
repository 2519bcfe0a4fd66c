"Self-attention before the Transformer: formulas pair by pair, PyTorch's LSTM, padding."
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.self_attention import LSTMN, DecomposableAttention, IntraAttention, IntraDecoderAttention, StructuredSelfAttention, _temporal_attention

EXACT = dict(rtol=0, atol=1e-12)

def lstmn():
    "A layer, its inputs (2, 7, 5), its states and weights."
    torch.manual_seed(0)
    layer, x = LSTMN(5, 6).double(), torch.randn(2, 7, 5, dtype=torch.float64)
    return layer, x, *layer(x)

def scores():
    torch.manual_seed(1)
    return torch.randn(2, 4, 5, dtype=torch.float64)

def test_lstmn_depends_on_earlier_tokens_only():
    layer, x, h, weights = lstmn()
    other = x.clone()
    other[:, 4:] += 1
    assert_close(layer(other)[0][:, :4], h[:, :4], **EXACT)
    assert_close(weights.sum(-1)[:, 1:], torch.ones(2, 6).double())
    assert_close(weights, weights.tril(-1))

@torch.no_grad()
def test_lstmn_with_one_earlier_state_is_pytorchs_lstm():
    (layer, x, h, _), lstm = lstmn(), nn.LSTMCell(5, 6).double()
    W, b, order = layer.gates.weight, layer.gates.bias, torch.arange(24).view(4, 6)[[0, 1, 3, 2]].flatten()   # PyTorch: i, f, new, o
    lstm.weight_ih.copy_(W[order, :5]); lstm.weight_hh.copy_(W[order, 5:])
    lstm.bias_ih.copy_(b[order]); lstm.bias_hh.zero_()
    state = lstm(x[:, 0])
    assert_close(h[:, 0], state[0])
    assert_close(h[:, 1], lstm(x[:, 1], state)[0])

@torch.no_grad()
def test_weights_of_lstmn_pair_by_pair():
    (layer, x, h, weights), mixed = lstmn(), torch.zeros(2, 6).double()
    for t in range(1, 7):
        a = torch.stack([layer.v(torch.tanh(layer.W_h(h[:, i]) + layer.W_x(x[:, t]) + layer.W_mixed(mixed))) for i in range(t)], 1)[..., 0]
        assert_close(a.softmax(-1), weights[:, t, :t])
        mixed = (a.softmax(-1)[..., None] * h[:, :t]).sum(1)

def test_temporal_attention_is_its_fraction():
    e = scores()
    for t, alpha in enumerate(_temporal_attention(e).unbind(1)):
        fraction = e[:, t].exp() / (e[:, :t].exp().sum(1) if t else 1)
        assert_close(alpha, fraction / fraction.sum(-1, keepdim=True))

def test_a_masked_token_has_no_weight_in_temporal_attention():
    alpha = _temporal_attention(scores().masked_fill(torch.arange(5) == 2, -torch.inf))
    assert alpha.isfinite().all() and not alpha[..., 2].any()

def test_intra_decoder_attention_is_pytorchs_under_a_mask():
    own, h = IntraDecoderAttention(6).double(), torch.randn(2, 7, 6, dtype=torch.float64)
    context, _ = own(h)
    earlier = torch.ones(7, 7, dtype=torch.bool).tril(-1)[1:]
    assert_close(context[:, 0], torch.zeros(2, 6).double())
    assert_close(context[:, 1:], F.scaled_dot_product_attention(own.W(h)[:, 1:], h, h, earlier, scale=1.))

def test_padding_changes_nothing():
    layer, x, h, _ = lstmn()
    mask, alone, all_real = torch.arange(7) < torch.tensor([[7], [4]]), x[1:, :4], torch.ones(1, 4, dtype=torch.bool)
    intra, looks, pair = IntraAttention(5).double(), StructuredSelfAttention(5, 6, 3).double(), DecomposableAttention(5, 6).double()
    assert_close(h[1:, :4], layer(alone)[0], **EXACT)
    assert_close(intra(x, mask)[1:, :4], intra(alone, all_real), **EXACT)
    assert_close(looks(x, mask)[0][1:], looks(alone, all_real)[0], **EXACT)
    assert_close(pair(x, x, mask, mask)[0][1:], pair(alone, alone, all_real, all_real)[0], **EXACT)
