"Recurrent translators: the scores by their formulas, local windows, padding, the order of reading."
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.recurrent import _SCORE_FUNCTIONS, RecurrentConfig, RecurrentTranslator, _AttentionScore, _AttentionWindow
from annotated_transformer.data.number_names import BOS

KINDS = [dict(score=score) for score in _SCORE_FUNCTIONS] + [
    dict(score='general', window='local-p', input_feeding=True, cell='lstm', N=2), dict(score='dot', window='local-m', D=3, reverse=True),
    dict(score='none', bidirectional=False, reverse=True, cell='lstm', N=2)]

def pairs():
    "Sources of 9, 6 and 3 tokens, targets of 12."
    torch.manual_seed(0)
    src, tgt = torch.randint(3, 20, (3, 9)), torch.randint(3, 20, (3, 12))
    src[1, 6:] = 0; src[2, 3:] = 0; tgt[:, 0] = BOS
    return src, tgt

def translator(**kind):
    torch.manual_seed(0)
    return RecurrentTranslator(RecurrentConfig(20, 16, max_len=30, **kind)).eval()

def scored(kind, q, k, score=None):
    score = score or _AttentionScore(8, kind, 9)
    return score(q, score.project_keys(k))

def queries_and_keys():
    torch.manual_seed(0)
    return torch.randn(2, 3, 8), torch.randn(2, 5, 8)

def test_dot_is_equation_1_without_its_scale():
    q, k = queries_and_keys()
    assert_close(scored('dot', q, k).softmax(-1) @ k, F.scaled_dot_product_attention(q, k, k, scale=1.))

def test_general_with_the_identity_is_dot():
    (q, k), general = queries_and_keys(), _AttentionScore(8, 'general', 9)
    nn.init.eye_(general.W.weight)
    assert_close(scored('general', q, k, general), scored('dot', q, k))

def test_location_does_not_depend_on_the_states():
    (q, k), location = queries_and_keys(), _AttentionScore(8, 'location', 9)
    assert_close(scored('location', q, k, location), scored('location', q, torch.randn_like(k), location))

def test_additive_pair_by_pair():
    (q, k), s = queries_and_keys(), _AttentionScore(8, 'additive', 9)
    for i, j in (0, 0), (2, 4):
        inner = torch.tanh(s.W.weight @ q[1, i] + s.U.weight @ k[1, j])
        assert_close(scored('additive', q, k, s)[1, i, j], (s.v.weight[0] * inner).sum())

def with_window(window, D):
    "Logits with global attention, and of the same model with a window."
    whole, local = translator(score='dot'), translator(score='dot', window=window, D=D)
    local.load_state_dict(whole.state_dict(), strict=False)
    return [model(*pairs()) for model in (whole, local)]

def test_a_wide_window_is_global_attention():
    "A narrow one is not."
    assert_close(*with_window('local-m', 100))
    assert_close(*with_window('local-p', 10_000), rtol=1e-4, atol=1e-4)
    whole, narrow = with_window('local-m', 1)
    assert (whole - narrow).abs().max() > 1e-3

def test_a_window_ends_with_the_source():
    mask, _ = _AttentionWindow(1, 'local-m', 1)(torch.zeros(1, 8, 1), torch.ones(1, 6).bool(), torch.arange(8)[None])
    assert mask[0].int().tolist() == [[int(abs(j - min(t, 5)) <= 1) for j in range(6)] for t in range(8)]

@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: '-'.join(map(str, kind.values())))
def test_padding_and_later_tokens_change_nothing(kind):
    model, (src, tgt) = translator(**kind).double(), pairs()
    for p in model.parameters(): nn.init.normal_(p, std=.3)
    logits, later = model(src, tgt), tgt.clone()
    assert_close(model(src[2:, :3], tgt[2:]), logits[2:])
    later[:, 7:] = 5
    assert_close(model(src, later)[:, :7], logits[:, :7])

def test_reading_from_the_end_is_reading_the_reversed_source():
    (src, tgt), (forwards, backwards) = pairs(), (translator(score='none', bidirectional=False, reverse=reverse) for reverse in (False, True))
    backwards.load_state_dict(forwards.state_dict())
    assert_close(forwards(src[:1].flip(1), tgt[:1]), backwards(src[:1], tgt[:1]))
