"Drawn translations: their log-probabilities, the limit of greedy decoding, and what is refused."
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.inference.sampling import _top_p_filter, sample
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer

PAD, BOS, EOS, V = 0, 1, 2, 6
IDS = dict(bos_id=BOS, eos_id=EOS)
SRC = torch.tensor([[3, 4, 5, EOS], [5, 3, EOS, PAD], [4, EOS, PAD, PAD]])

def model(seed):
    torch.manual_seed(seed)
    m = Transformer(TransformerConfig(vocab_size=V, N=1, d_model=16, d_ff=16, h=2, P_drop=0.)).double().eval()
    with torch.no_grad(): m.output_projection.weight.mul_(3)             # opinions strong enough to differ
    return m

@torch.no_grad()
def log_prob(m, src, written):
    "Of the tokens and the end after them, by one forward pass."
    logits = m(src[None], torch.tensor([[BOS, *written]]))[0].log_softmax(-1)
    return sum(logits[t, y].item() for t, y in enumerate([*written, EOS]))

def draw(m, seed=5, **options): return sample(m, SRC, generator=torch.Generator().manual_seed(seed), **options, **IDS)

@pytest.mark.parametrize('options', [{}, dict(temperature=2.), dict(top_p=.8)])
def test_the_log_probability_is_the_models(options):
    m = model(2)
    for src, h in zip(SRC, draw(m, **options)): assert_close(h.log_prob, log_prob(m, src[src != PAD], h.ids))

def test_a_seed_draws_the_same_and_another_seed_does_not():
    m = model(2)
    assert draw(m) == draw(m) != draw(m, 6)

@pytest.mark.parametrize('options', [dict(temperature=1e-3), dict(top_p=1e-6)])
@pytest.mark.parametrize('seed', range(4))
def test_a_low_temperature_and_a_tiny_nucleus_are_greedy_decoding(options, seed):
    m = model(seed)
    assert [h.ids for h in draw(m, **options)] == [h.ids for h, in beam_search(m, SRC, 1, **IDS)]

@pytest.mark.parametrize('top_p, kept', [(.7, [0, .5, 0, .3]), (.85, [.15, .5, 0, .3]), (1e-6, [0, .5, 0, 0]), (1., [.15, .5, .05, .3])])
def test_the_nucleus_is_the_fewest_likeliest_tokens(top_p, kept):
    assert_close(_top_p_filter(torch.tensor([.15, .5, .05, .3]).log(), top_p).exp(), torch.tensor(kept))

def test_special_tokens_are_not_drawn_and_the_limit_holds():
    for src, h in zip(SRC, draw(model(0), temperature=50., max_extra_tokens=2)):
        assert {PAD, BOS, EOS}.isdisjoint(h.ids) and len(h.ids) + 1 <= (src != PAD).sum() + 2

@pytest.mark.parametrize('options', [dict(temperature=0.), dict(top_p=0.), dict(top_p=1.1)])
def test_what_is_refused(options):
    with pytest.raises(ValueError, match='must be above 0'): sample(model(0), SRC, **options, **IDS)

def test_first_tokens_are_as_frequent_as_probable():
    "Within four standard deviations, in 4000 samples of an untrained model."
    m, n = model(0), 4000
    samples = sample(m, SRC[:1].expand(n, -1), generator=torch.Generator().manual_seed(0), max_extra_tokens=1, **IDS)
    with torch.no_grad(): p = m(SRC[:1], torch.tensor([[BOS]]))[0, 0].softmax(-1)
    p[[PAD, BOS]] = 0
    p /= p.sum()
    frequency = torch.bincount(torch.tensor([h.ids[0] if h.ids else EOS for h in samples]), minlength=V) / n
    assert ((frequency - p).abs() <= 4 * (p * (1 - p) / n).sqrt()).all(), (frequency, p)

def test_whole_sentences_are_as_frequent_as_probable():
    "The most frequent of 1000, by the product of its tokens' probabilities without <pad> and <bos>."
    m, n = model(0), 1000
    samples = sample(m, SRC[:1].expand(n, -1), generator=torch.Generator().manual_seed(1), **IDS)
    ids, count = Counter(tuple(h.ids) for h in samples).most_common(1)[0]
    y = torch.tensor([[BOS, *ids, EOS]])
    with torch.no_grad(): p = m(SRC[:1], y[:, :-1]).softmax(-1)[0]
    p[:, [PAD, BOS]] = 0
    p = (p / p.sum(-1, keepdim=True)).gather(-1, y[0, 1:, None]).prod().item()
    assert abs(count / n - p) <= 4 * (p * (1 - p) / n) ** .5, (ids, count / n, p)
