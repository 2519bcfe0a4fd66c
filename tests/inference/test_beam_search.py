"Beam search against a search through everything, greedy search by hand, and itself in another batch."
import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.inference.beam_search import beam_search, length_penalty
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer

PAD, BOS, EOS, V = 0, 1, 2, 6
IDS = dict(bos_id=BOS, eos_id=EOS)

def model(seed=0, **changes):
    torch.manual_seed(seed)
    m = Transformer(TransformerConfig(**dict(vocab_size=V, N=1, d_model=16, d_ff=16, h=2, P_drop=0.) | changes)).double().eval()
    with torch.no_grad(): m.output_projection.weight.mul_(3)             # opinions strong enough to differ
    return m

SRC = torch.tensor([[3, 4, 5, EOS], [5, 3, EOS, PAD], [4, EOS, PAD, PAD]])

@torch.no_grad()
def log_prob(m, src, written):
    "Of the tokens and the end after them, by one forward pass."
    tgt = torch.tensor([[BOS, *written]])
    logits = m(src[None], tgt)[0].log_softmax(-1)
    return sum(logits[t, y].item() for t, y in enumerate([*written, EOS]))

def everything(m, src, limit, alpha):
    "The best of all translations of up to `limit` tokens."
    words = [v for v in range(V) if v not in (PAD, BOS, EOS)]
    every = (list(y) for n in range(limit + 1) for y in itertools.product(words, repeat=n))
    return max((log_prob(m, src, y) / length_penalty(len(y) + 1, alpha), y) for y in every)

@pytest.mark.parametrize('alpha', [0., .6, 1.])
@pytest.mark.parametrize('seed', [0, 1, 2])
def test_a_beam_as_wide_as_all_prefixes_finds_the_best(alpha, seed):
    m = model(seed)
    src = SRC[2:, :2]
    limit = 4
    found = beam_search(m, src, beam=3 ** limit, alpha=alpha, max_extra_tokens=limit - 1, n_best=1, **IDS)[0][0]
    score, ids = everything(m, src[0], limit, alpha)
    assert_close(found.score, score)
    assert list(found.ids) == ids

@pytest.mark.parametrize('seed', range(4))
def test_a_beam_of_one_is_greedy(seed):
    m = model(seed)
    for src, found in zip(SRC, beam_search(m, SRC, beam=1, max_extra_tokens=8, **IDS)):
        written, limit = [], int((src != PAD).sum()) + 8 - 1       # and the end
        while len(written) < limit:
            with torch.no_grad(): logits = m(src[None], torch.tensor([[BOS, *written]]))[0, -1]
            logits[[PAD, BOS]] = -math.inf
            best = logits.argmax().item()
            if best == EOS: break
            written.append(best)
        assert list(found[0].ids) == written[:limit]

@pytest.mark.parametrize('beam', [1, 3, 5])
def test_a_sentence_does_not_see_its_batch(beam):
    m = model(3)
    together = beam_search(m, SRC, beam=beam, **IDS)
    for i, src in enumerate(SRC):
        alone = beam_search(m, src[src != PAD][None], beam=beam, **IDS)[0]
        assert [h.ids for h in alone] == [h.ids for h in together[i]]
        assert_close([h.score for h in alone], [h.score for h in together[i]])

@pytest.mark.parametrize('beam', [2, 4])
def test_scores_are_those_of_one_forward_pass(beam):
    m = model(1)
    for src, found in zip(SRC, beam_search(m, SRC, beam=beam, alpha=.6, **IDS)):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for h in found:
            assert_close(h.log_prob, log_prob(m, src[src != PAD], h.ids))
            assert_close(h.score, h.log_prob / length_penalty(len(h.ids) + 1, .6))

def test_length_penalty():
    "((5 + |Y|) / 6)^α, §6.1 and Wu et al."
    assert length_penalty(1, .6) == 1 and length_penalty(7, 0.) == 1
    assert_close(length_penalty(7, .6), 2 ** .6)

def test_an_ensemble_averages_probabilities():
    a, b = model(0), model(1)
    found = beam_search([a, b], SRC[:1], beam=1, alpha=0., **IDS)[0][0]
    with torch.no_grad(): p = [m(SRC[:1], torch.tensor([[BOS, *found.ids]])).softmax(-1)[0] for m in (a, b)]
    mean = ((p[0] + p[1]) / 2).log()
    assert_close(found.log_prob, sum(mean[t, y].item() for t, y in enumerate([*found.ids, EOS])))

@pytest.mark.parametrize('options, said', [(dict(beam=0), 'beam'), (dict(alpha=-1.), 'alpha'), (dict(n_best=9, beam=4), 'n_best')])
def test_what_is_refused(options, said):
    with pytest.raises(ValueError, match=said): beam_search(model(), SRC, **options, **IDS)
