"The whole model: PyTorch's with copied weights, causality, padding, tying, and reading token by token."
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.model.config import TransformerConfig, count_parameters, presets
from annotated_transformer.model.seq2seq import incremental_logits
from annotated_transformer.model.transformer import Transformer

SMALL = TransformerConfig(vocab_size=20, N=2, d_model=16, d_ff=32, h=4, P_drop=.1)
KINDS = {'the paper': {}, 'pre-norm': dict(norm='pre'), 'untied': dict(tie_embeddings=False), 'learned positions': dict(positions='learned', max_len=12),
         'two vocabularies': dict(src_vocab_size=30), 'narrow heads': dict(d_k=3, d_v=5), 'one layer': dict(N=1)}

def model(**changes):
    torch.manual_seed(0)
    return Transformer(replace(SMALL, **changes)).double().eval()

def ids(*shape, low=4, high=20):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0))

def copied(ours):
    "PyTorch's encoder and decoder with our weights; its biases of projections are zero."
    c, last = ours.config, lambda: nn.LayerNorm(ours.config.d_model) if ours.config.norm == 'pre' else None
    settings = dict(dropout=0., batch_first=True, norm_first=c.norm == 'pre')
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(c.d_model, c.h, c.d_ff, **settings), c.N, last(), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(c.d_model, c.h, c.d_ff, **settings), c.N, last())
    whole = nn.Transformer(c.d_model, c.h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()      # which draws new weights
    def attention(a, b):
        b.in_proj_weight.copy_(torch.cat([a.W_Q.weight, a.W_K.weight, a.W_V.weight]))
        b.out_proj.weight.copy_(a.W_O.weight)
        b.in_proj_bias.zero_(); b.out_proj.bias.zero_()
    def same(a, b): b.load_state_dict(a.state_dict())
    with torch.no_grad():
        for ours_stack, theirs in (ours.encoder, encoder), (ours.decoder, decoder):
            for a, b in zip(ours_stack.layers, theirs.layers, strict=True):
                attention(a.self_attn, b.self_attn)
                if hasattr(b, 'multihead_attn'): attention(a.cross_attn, b.multihead_attn)
                same(a.feed_forward.W_1, b.linear1); same(a.feed_forward.W_2, b.linear2)
                for i, add_norm in enumerate(a.add_norm, 1): same(add_norm.norm, getattr(b, f'norm{i}'))
            if theirs.norm is not None: same(ours_stack.final_norm, theirs.norm)
    return whole.eval()

@pytest.mark.parametrize('kind', ['the paper', 'pre-norm', 'untied', 'one layer'])
def test_pytorch_with_copied_weights(kind):
    ours, src, tgt = model(**KINDS[kind]), ids(3, 7), ids(3, 6)
    src[1, 4:] = src[2, 1:] = 0
    theirs, pad = copied(ours), src == 0
    x, y = ours.src_position(ours.src_embed(src)), ours.tgt_position(ours.tgt_embed(tgt))
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    logits = ours.output_projection(theirs(x, y, tgt_mask=causal, src_key_padding_mask=pad, memory_key_padding_mask=pad))
    assert_close(ours(src, tgt), logits)
    weight = torch.randn_like(logits)
    embedding = ours.tgt_embed.weight if hasattr(ours.tgt_embed, 'weight') else next(ours.tgt_embed.parameters())
    assert_close(*(torch.autograd.grad((out * weight).sum(), embedding)[0] for out in (ours(src, tgt), logits)))

@pytest.mark.parametrize('kind', KINDS)
def test_a_prediction_sees_only_what_is_before_it(kind):
    m, src, tgt = model(**KINDS[kind]), ids(2, 7), ids(2, 6)
    whole = m(src, tgt)
    for t in range(1, 6):
        other = tgt.clone()
        other[:, t:] = (tgt[:, t:] - 4 + t) % 16 + 4                                   # other tokens from here on
        assert_close(m(src, other)[:, :t], whole[:, :t], rtol=0, atol=0)

@pytest.mark.parametrize('kind', KINDS)
def test_padding_changes_nothing(kind):
    m, src, tgt = model(**KINDS[kind]), ids(1, 5), ids(1, 4)
    more = [torch.cat([x, torch.zeros(1, 3, dtype=torch.long)], 1) for x in (src, tgt)]
    assert_close(m(*more)[:, :4], m(src, tgt))
    beside = [torch.cat([x, ids(1, x.size(1)).flip(1)]) for x in more]                 # another, longer pair in the batch
    assert_close(m(*beside)[:1, :4], m(src, tgt))

@pytest.mark.parametrize('kind', KINDS)
def test_token_by_token(kind):
    m, src, tgt = model(**KINDS[kind]), ids(3, 7), ids(3, 6)
    tgt[:, 0] = 2
    src[1, 3:] = 0
    assert_close(incremental_logits(m, src, tgt), m(src, tgt))

def test_order_matters():
    "Unlike attention alone, the model knows where a token stands."
    m, src, tgt = model(), ids(1, 6), ids(1, 3)
    assert (m(src, tgt) - m(src.flip(1), tgt)).abs().max() > 1e-3

def test_three_way_tying():
    m = model()
    assert m.src_embed is m.tgt_embed and m.output_projection.weight.data_ptr() == next(m.tgt_embed.parameters()).data_ptr()
    untied = model(tie_embeddings=False)
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in m.parameters()) == 2 * 20 * 16

@pytest.mark.parametrize('name', ['base', 'big'])
def test_parameters_of_the_paper(name):
    "Table 3 says 65 and 213 million, with a vocabulary of its own; ours are counted with V = 37,000."
    with torch.device('meta'): m = Transformer(presets[name])
    assert count_parameters(presets[name]) == sum(p.numel() for p in m.parameters())
    assert abs(sum(p.numel() for p in m.parameters()) / 1e6 / dict(base=65, big=213)[name] - 1) < .05

def test_dropout_acts_in_training_only():
    m, src, tgt = model().train(), ids(2, 5), ids(2, 4)
    assert not torch.equal(m(src, tgt), m(src, tgt))
    m.eval()
    assert torch.equal(m(src, tgt), m(src, tgt))
