"The whole model: PyTorch's with copied weights, causality, padding, tying, reading token by token, and save and load."
import json
from dataclasses import asdict, replace

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.model.config import TransformerConfig, count_parameters, presets
from annotated_transformer.model.seq2seq import incremental_logits
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.run_directory import load_model

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

def test_padding_that_is_taken_for_a_token_moves_the_logits():
    "So the test above can fail."
    m, src, tgt = model(), ids(2, 7), ids(2, 6)
    src[1, 3:] = 0
    logits, m.pad_id = m(src, tgt), -1
    assert (m(src, tgt) - logits)[1].abs().max() > .1

def test_padding_of_the_target_needs_no_mask():
    "It stands at the end: positions before it never attend to it, and what it predicts itself is meaningless."
    m, src, tgt = model(), ids(2, 7), ids(2, 6)
    tgt[1, 3:] = 0
    padding, logits = tgt == 0, m(src, tgt)
    other = m(src, tgt.masked_fill(padding, 7))
    assert_close(other[~padding], logits[~padding], rtol=0, atol=0)
    assert not torch.equal(other[padding], logits[padding])

@pytest.mark.parametrize('kind', KINDS)
def test_token_by_token(kind):
    m, src, tgt = model(**KINDS[kind]), ids(3, 7), ids(3, 6)
    tgt[:, 0] = 2
    src[1, 3:] = 0
    assert_close(incremental_logits(m, src, tgt), m(src, tgt))

def random_steps(sources, hypotheses, length):
    "Rows and tokens of each step: in the first one hypothesis a source, then several, of random origin."
    rows = torch.arange(sources)
    for _ in range(length):
        yield rows, torch.randint(4, 20, (len(rows),))
        before = len(rows) // sources
        rows = (before * torch.arange(sources)[:, None] + torch.randint(before, (sources, hypotheses))).flatten()

@pytest.mark.parametrize('kind', KINDS)
def test_reordered_hypotheses(kind):
    "Four of each of three sources, against one pass over each alone; then a source leaves the batch."
    m, src = model(**KINDS[kind]), ids(3, 6)
    src[1, 4:] = src[2, 2:] = 0
    state, source, prefixes = m.init_state(src), torch.arange(3), torch.zeros(3, 0, dtype=torch.long)
    for rows, token in random_steps(3, 4, 8):
        m.reorder(state, rows)
        source, prefixes = source[rows], torch.cat([prefixes[rows], token[:, None]], 1)
        assert_close(m.decode_step(state, token), m(src[source], prefixes)[:, -1], rtol=0, atol=1e-12)
    rows = torch.cat([torch.arange(8, 12), torch.arange(4)])
    m.reorder(state, rows)
    prefixes = torch.cat([prefixes[rows], torch.full((8, 1), 5)], 1)
    assert_close(m.decode_step(state, prefixes[:, -1]), m(src[source[rows]], prefixes)[:, -1], rtol=0, atol=1e-12)

def test_weights_that_are_kept_change_no_logit():
    m, src, tgt = model(), ids(1, 3), ids(1, 4)
    logits = m(src, tgt)
    for layer in m.decoder.layers: layer.cross_attn.need_weights = True
    assert_close(m(src, tgt), logits)
    weights = m.decoder.layers[-1].cross_attn.attn_weights
    assert weights.shape == (1, 4, 4, 3) and m.encoder.layers[0].self_attn.attn_weights is None
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))

@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA'))])
def test_bfloat16(device):
    "The same logits up to the eight bits of the format."
    m, src, tgt = model().float().to(device), ids(3, 7).to(device), ids(3, 6).to(device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16): rounded = m(src, tgt)
    exact = m(src, tgt)
    assert (rounded.float() - exact).norm() < .03 * exact.norm()

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

@pytest.mark.parametrize('changes', [dict(norm='pre'), dict(tie_embeddings=False), dict(positions='learned', max_len=100), dict(d_k=16, d_v=48, h=7)])
def test_parameters_of_switches_that_are_in_no_row(changes):
    c = replace(presets['base'], **changes)
    with torch.device('meta'): assert count_parameters(c) == sum(p.numel() for p in Transformer(c).parameters())

def save(m, folder, **changes):
    (folder / 'config.json').write_text(json.dumps(dict(architecture='transformer', model=asdict(m.config) | changes, pad_id=m.pad_id)))
    safetensors.torch.save_model(m, str(folder / 'model.safetensors'))

def test_saved_and_loaded(tmp_path):
    "The same logits, in evaluation mode; a shared matrix is written once and tied again."
    torch.manual_seed(0)
    m, src, tgt = Transformer(SMALL, pad_id=8).eval(), ids(2, 5), ids(2, 4)
    save(m, tmp_path)
    for loaded in load_model(tmp_path), load_model(tmp_path, architecture='transformer'):
        assert_close(loaded(src, tgt), m(src, tgt), rtol=0, atol=0)
        assert not loaded.training and loaded.src_embed.weight is loaded.output_projection.weight
        assert (loaded.config, loaded.pad_id) == (m.config, 8)
    names = safetensors.torch.load_file(tmp_path / 'model.safetensors')
    assert len({'src_embed.weight', 'tgt_embed.weight', 'output_projection.weight'} & names.keys()) == 1

def test_files_that_are_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match='contains no config.json: is it a run directory?'): load_model(tmp_path)
    save(model(), tmp_path)
    with pytest.raises(FileNotFoundError, match='contains no checkpoints/9.safetensors'): load_model(tmp_path, 'checkpoints/9.safetensors')
    (tmp_path / 'model.safetensors').unlink()
    with pytest.raises(FileNotFoundError, match='contains no model.safetensors'): load_model(tmp_path)

@pytest.mark.parametrize('changes, message', [(dict(d_ff=128), r'W_1.weight has shape \(32, 16\)'), (dict(N=9), 'encoder.layers.2.self_attn.W_Q.weight is missing'), (dict(d_fff=128), "unknown field 'd_fff'")])
def test_weights_of_another_model(changes, message, tmp_path):
    save(model(), tmp_path, **changes)
    with pytest.raises(ValueError, match=message): load_model(tmp_path)

def test_dropout_acts_in_training_only():
    m, src, tgt = model().train(), ids(2, 5), ids(2, 4)
    assert not torch.equal(m(src, tgt), m(src, tgt))
    m.eval()
    assert torch.equal(m(src, tgt), m(src, tgt))
