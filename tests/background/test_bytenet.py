"ByteNet: the dilated convolution by its formula, beams, padding, a saved run, refusals."
import json
from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.bytenet import ByteNet, ByteNetConfig, _DilatedConv
from annotated_transformer.data.number_names import BOS, PAD
from annotated_transformer.model.pretrained import save_weights
from annotated_transformer.model.seq2seq import get_architecture
from annotated_transformer.run_directory import load_model

CONFIG = ByteNetConfig(40, d_model=16, dilations=(1, 2, 4), sets=2, P_drop=0.)

def small():
    "A model in double precision, three sources of 5, 8 and 11 columns, and targets that are longer."
    torch.manual_seed(0)
    model, src = ByteNet(CONFIG).double().eval(), torch.randint(3, 40, (3, 9))
    src[0, 4:], src[1, 7:] = PAD, PAD
    return model, src, torch.cat([torch.full((3, 1), BOS), torch.randint(3, 40, (3, 19))], 1)

@pytest.mark.parametrize('r', [1, 4])
def test_the_convolution_is_its_formula(r):
    "Three inputs r places apart, the last of them the position itself."
    x, conv = torch.randn(2, 20, 4), _DilatedConv(4, 5, k=3, r=r, masked=True)
    y = conv.bias.expand(2, 20, 5)
    for j in range(3): y = y + F.pad(x, (0, 0, (2 - j) * r, 0))[:, :20] @ conv.weight[..., j].T
    assert_close(conv(x), y)

@pytest.mark.parametrize('masked', [False, True])
def test_without_dilation_it_is_pytorchs(masked):
    x, ours, theirs = torch.randn(2, 9, 4), _DilatedConv(4, 6, 5, masked=masked), nn.Conv1d(4, 6, 5, padding=2)
    theirs.load_state_dict(ours.state_dict())
    if masked: assert_close(ours(x)[:, 4:], theirs(x.mT).mT[:, 2:-2])
    else: assert_close(ours(x), theirs(x.mT).mT)

@pytest.mark.parametrize('k', [1, 2, 3, 4])
def test_the_length_stays(k): assert _DilatedConv(4, 6, k, 3)(torch.randn(2, 9, 4)).shape == (2, 9, 6)

def test_reordered_and_doubled_prefixes_are_as_written_out():
    "A finished sentence is dropped."
    model, src, tgt = small()
    state, prefixes, source = model.init_state(src), tgt[:, :1], torch.arange(3)
    model.decode_step(state, tgt[:, 0])
    for rows, token in ([0, 0, 1, 1, 2, 2], [5, 6, 7, 8, 9, 10]), ([1, 1, 5, 4], [11, 12, 13, 14]):          # the second is finished
        model.reorder(state, torch.tensor(rows))
        logits, source = model.decode_step(state, torch.tensor(token)), source[rows]
        prefixes = torch.cat([prefixes[rows], torch.tensor(token)[:, None]], 1)
    assert_close(logits, model(src[source], prefixes)[:, -1], rtol=0, atol=1e-9)
    assert prefixes.tolist() == [[BOS, 6, 11], [BOS, 6, 12], [BOS, 10, 13], [BOS, 9, 14]]

def test_padding_and_the_order_of_a_batch_change_nothing():
    model, src, tgt = small()
    logits = model(src, tgt)
    assert [*model.encode(src).abs().sum(-1).gt(0).sum(1)] == [5, 8, 11]
    assert_close(model(F.pad(src, (0, 30)), tgt), logits, rtol=0, atol=0)
    assert_close(model(src.roll(1, 0), tgt.roll(1, 0)).roll(-1, 0), logits, rtol=0, atol=1e-12)

def test_a_source_without_a_token():
    model, _, tgt = small()
    empty = model(torch.zeros(1, 3, dtype=torch.long), tgt[:1])
    assert empty.isfinite().all()
    assert_close(empty, model(torch.zeros(1, 9, dtype=torch.long), tgt[:1]))

def test_saved_and_loaded(tmp_path):
    model, src, tgt = small()
    assert (model.architecture, get_architecture('bytenet')) == ('bytenet', ByteNet)
    assert CONFIG.dilations == [1, 2, 4]
    (tmp_path / 'config.json').write_text(json.dumps(dict(architecture='bytenet', model=asdict(CONFIG), pad_id=PAD)))
    save_weights(model.float().state_dict(), CONFIG, tmp_path / 'model.safetensors')
    assert_close(load_model(tmp_path)(src, tgt), model(src, tgt), rtol=0, atol=0)

@pytest.mark.parametrize('settings, message', [
    (dict(d_model=15), 'd_model=15 is odd'), (dict(k=0), 'k=0'), (dict(dilations=[]), 'at least one'), (dict(a=0.), r'a=0\.0'),
    (dict(dilations=[1, 2.5]), r'2\.5'), (dict(dilations='1 2'), 'list'), (dict(P_drop=1.), r'P_drop=1\.0')])
def test_refused(settings, message):
    with pytest.raises(ValueError, match=message): ByteNetConfig(**settings)
