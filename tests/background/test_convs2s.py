"ConvS2S: a gated block by hand, windows, padding, dropped sources, the encoder's gradient, saved runs, refusals."
import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.background.convs2s import ConvS2S, ConvS2SConfig, _grad_multiply
from annotated_transformer.model.pretrained import save_weights
from annotated_transformer.model.seq2seq import incremental_logits
from annotated_transformer.run_directory import load_model

CONFIG = ConvS2SConfig(20, 16, P_drop=0., max_len=12)

def small(**changes):
    torch.manual_seed(0)
    return ConvS2S(replace(CONFIG, **changes)).double().eval()

def pairs():
    "Sources of 5, 3 and 2 tokens, targets of 12."
    torch.manual_seed(1)
    return torch.tensor([[4, 5, 6, 7, 2], [9, 8, 2, 0, 0], [3, 2, 0, 0, 0]]), torch.cat([torch.ones(3, 1).long(), torch.randint(3, 20, (3, 11))], 1)

def test_weights_are_normalised_per_output():
    model = small()
    for layer in model.encoder[0].conv, model.decoder[0].query, model.output_projection:
        lengths = layer.parametrizations.weight.original0
        assert lengths.numel() == layer.weight.size(0)
        assert_close(layer.weight.flatten(1).norm(dim=1), lengths.flatten())

def test_a_block_by_hand():
    block, x = small().encoder[0], torch.randn(1, 7, 16).double()
    A, B = (torch.einsum('oik, ki -> o', block.conv.weight, x[0, 2:5]) + block.conv.bias).chunk(2)
    assert_close(block(x)[0, 2], A * B.sigmoid())

def test_a_token_reaches_six_positions_on():
    "Three layers, windows of three, nothing before the token."
    model, (src, tgt) = small(), pairs()
    for t in range(1, 12):
        changed = tgt.clone()
        changed[:, t] = changed[:, t] % 17 + 3                            # another token
        moved = (model(src, changed) - model(src, tgt)).abs().amax((0, 2)) > 1e-12
        assert moved.nonzero()[:, 0].tolist() == [*range(t, min(t + 7, 12))]

def test_alone_as_in_a_padded_batch():
    "A row of padding alone gives finite numbers."
    model, (src, tgt) = small(), pairs()
    whole = model(src, tgt)
    for row, length in enumerate((5, 3, 2)): assert_close(whole[row:row + 1], model(src[row:row + 1, :length], tgt[row:row + 1]), rtol=0, atol=1e-9)
    assert model(torch.zeros_like(src), tgt).isfinite().all()

@torch.no_grad()
def test_the_others_go_on_when_a_source_is_dropped():
    model, (src, tgt), rows = small(), pairs(), torch.tensor([0, 2])
    state = model.init_state(src)
    model.decode_step(state, tgt[:, 0])
    model.reorder(state, rows)
    assert_close(model.decode_step(state, tgt[rows, 1]), model(src, tgt)[rows, 1], rtol=0, atol=1e-9)

def test_a_multiplied_gradient():
    x = torch.randn(4, requires_grad=True)
    y = _grad_multiply(x, 1 / 3)
    assert y.tolist() == x.tolist()
    assert_close(torch.autograd.grad((y ** 2).sum(), x)[0], 2 * x.detach() / 3)

def test_a_third_of_the_gradient_for_each_of_three_attentions():
    "All of it what does not pass through z: the embeddings in the values."
    model, (src, _) = small(), pairs()
    keys, values, _ = model.encode(src)
    bias, embeddings = model.encoder[0].conv.bias, model.src_embed.token_embedding.weight
    K, V = (torch.autograd.grad(part.sum(), bias, retain_graph=True)[0] for part in (keys, values))
    assert_close(V, K * math.sqrt(.5))                         # through z only
    one = small(attention_layers='last')
    one.load_state_dict(model.state_dict(), strict=False)
    assert_close(K, torch.autograd.grad(one.encode(src)[0].sum(), one.encoder[0].conv.bias)[0] / 3)
    direct, through = (torch.autograd.grad(part.sum(), embeddings, retain_graph=True)[0] for part in (values, keys))
    counts = torch.bincount(src.flatten(), minlength=20).double()[:, None]
    assert_close(direct, math.sqrt(.5) * (through + counts))

@pytest.mark.parametrize('tied', [False, True])
def test_saved_and_loaded(tied, tmp_path):
    saved, (src, tgt) = ConvS2S(replace(CONFIG, tie_embeddings=tied)).eval(), pairs()
    (tmp_path / 'config.json').write_text(json.dumps(dict(architecture='convs2s', model=asdict(saved.config), pad_id=0)))
    save_weights(dict(saved.named_parameters()), saved.config, tmp_path / 'model.safetensors')
    assert_close(load_model(tmp_path)(src, tgt), saved(src, tgt), rtol=0, atol=0)
    assert 'encoder.0.conv.parametrizations.weight.original0' in saved.state_dict()
    assert (saved.output_projection.weight is saved.tgt_embed.token_embedding.weight) == tied

@pytest.mark.parametrize('kind, attends', dict(all=[True] * 3, first=[True, False, False], last=[False, False, True]).items())
def test_layers_that_attend(kind, attends): assert [layer.query is not None for layer in small(attention_layers=kind).decoder] == attends

@pytest.mark.parametrize('settings, message', [(dict(k=4), 'k=4 is even'), (dict(attention_layers='two'), "attention_layers='two'"), (dict(P_drop=1.), r'P_drop=1\.0')])
def test_refused(settings, message):
    with pytest.raises(ValueError, match=message): ConvS2SConfig(**settings)

def test_refuses_positions_that_were_not_learned():
    "In the source, in the target, and step by step."
    model, beyond, some = small(), torch.ones(1, 13).long(), torch.ones(1, 2).long()
    for pair in (beyond, some), (some, beyond):
        with pytest.raises(ValueError, match='13 positions, but only max_len=12'): model(*pair)
    state = model.init_state(some)
    for _ in range(12): model.decode_step(state, some[:, 0])
    with pytest.raises(ValueError, match='13 positions'): model.decode_step(state, some[:, 0])
    assert model.max_target_length == 12

def test_without_positions_there_is_no_limit():
    model, beyond, pair = small(positions=False, k=1), torch.ones(1, 13).long(), pairs()
    assert (model.max_target_length, model(beyond, beyond).shape[1]) == (None, 13)
    assert_close(incremental_logits(model, *pair), model(*pair), rtol=0, atol=1e-9)
