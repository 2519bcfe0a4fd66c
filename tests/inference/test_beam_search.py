"Beam search against a search through everything, greedy search by hand, and itself in another batch."
import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.inference.beam_search import (
    Hypothesis, _advance_beams, _is_done, _make_prefix_constraint, _next_log_probs, beam_search, length_penalty)
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import Seq2SeqModel
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

# The same search as a loop over prefixes, and models of another kind

class Recurrent(Seq2SeqModel):
    "A recurrent model: its state is one vector for each prefix."
    def __init__(self, V=V, d=16):
        super().__init__(SimpleNamespace(vocab_size=V), PAD)
        self.embed, self.output_projection = nn.Embedding(V, d), nn.Linear(d, V)
        self.encoder, self.decoder = nn.GRU(d, d, batch_first=True), nn.GRUCell(d, d)

    def init_state(self, src): return dict(hidden=self.encoder(self.embed(src))[0][torch.arange(len(src)), (src != PAD).sum(1) - 1])
    def decode_step(self, state, token):
        state['hidden'] = self.decoder(self.embed(token), state['hidden'])
        return self.output_projection(state['hidden'])

    def reorder(self, state, rows): state['hidden'] = state['hidden'][rows]

    def forward(self, src, tgt):
        state = self.init_state(src)
        return torch.stack([self.decode_step(state, token) for token in tgt.unbind(1)], 1)

def recurrent(seed=0):
    torch.manual_seed(seed)
    return Recurrent().double().eval().requires_grad_(False)

def biased(m, eos):
    "A model whose logit of eos has something added."
    m.output_projection.register_forward_hook(lambda module, args, logits: logits + eos * (torch.arange(logits.size(-1)) == EOS))
    return m

def ranked(m, src, limit, alpha, wanted=lambda y: True):
    "All wanted translations of fewer than `limit` tokens with their scores, best first."
    every = (y for n in range(limit) for y in itertools.product(range(3, V), repeat=n) if wanted(y))
    return sorted(((log_prob(m, src, y) / length_penalty(len(y) + 1, alpha), y) for y in every), reverse=True)

def assert_hypotheses(found, expected):
    "The same translations in the same order, with the same scores."
    assert [tuple(h.ids) for h in found] == [y for _, y in expected]
    assert_close([h.score for h in found], [score for score, _ in expected])

def summary(found): return [(h.ids, round(h.score, 10)) for h in found]

@pytest.fixture(params=[model, recurrent], ids=['transformer', 'recurrent'])
def any_model(request): return request.param()

@pytest.mark.parametrize('alpha', [0., .6, 2.])
def test_a_wide_beam_lists_everything_in_order(any_model, alpha):
    "Not only the best: all 40 translations of up to three tokens."
    found, = beam_search(any_model, SRC[2:, :2], beam=40, alpha=alpha, max_extra_tokens=2, **IDS)
    assert_hypotheses(found, ranked(any_model, SRC[2, :2], 4, alpha))
    assert len(found) == 1 + 3 + 9 + 27

@pytest.mark.parametrize('wanted, constraint', [
    (lambda y: y[:2] == (5, 3), _make_prefix_constraint([[5, 3]], V)),
    (lambda y: all(a != b for a, b in zip(y, y[1:])), lambda rows, ids: torch.ones(*ids.shape[:2], V, dtype=torch.bool).scatter(2, ids[..., -1:], False))],
    ids=['forced beginning', 'no token twice in a row'])
def test_a_constraint_leaves_what_keeps_it(any_model, wanted, constraint):
    found, = beam_search(any_model, SRC[2:, :2], beam=40, max_extra_tokens=2, allowed_tokens_fn=constraint, **IDS)
    assert_hypotheses(found, ranked(any_model, SRC[2, :2], 4, .6, wanted))

def test_a_forced_translation_has_the_log_probability_of_one_pass(any_model):
    "Each source of a batch has its own."
    targets = [[5, 3, 3], [4], []]
    found = beam_search(any_model, SRC, beam=1, allowed_tokens_fn=_make_prefix_constraint([[*y, EOS] for y in targets], V), **IDS)
    for (h,), y, src in zip(found, targets, SRC):
        assert h.ids == y
        assert_close(h.log_prob, log_prob(any_model, src[src != PAD], y))

def test_the_bound_by_hand():
    "With α = 1 and a limit of 13 the penalty is 3: for two sentences of scores -1 and -2 a prefix must be above -6, for one above -3."
    assert [length_penalty(n, alpha=1) for n in (1, 7, 13)] == [1, 2, 3]
    done = [Hypothesis([3], -1., -1.), Hypothesis([4], -2., -2.)]
    for n, bests in (2, (-5.9, -6.)), (1, (-2.9, -3.)):
        assert [_is_done(done, p, max_length=13, n_best=n, alpha=1) for p in bests] == [False, True]
    assert not _is_done(done, -50., max_length=13, n_best=3, alpha=1)

def test_one_step_of_the_beam_by_hand():
    "Two prefixes of .6 and .4 and three tokens: eos of the first comes third and is finished, the three next best stay."
    log_probs = torch.tensor([[[.35, .2, .45], [.2, 0., .8]]]) * torch.tensor([[[.6], [.4]]])
    (best, beam_idx, token), finished = _advance_beams(log_probs.log(), 3, eos_id=0)
    assert_close(best.exp(), torch.tensor([[.32, .27, .12]]))
    assert (beam_idx.tolist(), token.tolist()) == ([[1, 0, 0]], [[2, 2, 1]])
    assert [(row, index) for row, index, _ in finished] == [(0, 0)] and finished[0][2] == pytest.approx(math.log(.21))

def test_the_best_alone_takes_fewer_steps(any_model):
    "`n_best=1` gives the first of the list."
    for src in SRC:
        best, = beam_search(any_model, src[src != PAD][None], n_best=1, **IDS)
        assert summary(best) == summary(beam_search(any_model, src[src != PAD][None], **IDS)[0])[:1]

def test_neither_padding_nor_order_matters(any_model):
    together = beam_search(any_model, SRC, **IDS)
    for other in (beam_search(any_model, SRC.flip(0), **IDS)[::-1], beam_search(any_model, torch.nn.functional.pad(SRC, (0, 3)), **IDS)):
        assert [summary(hs) for hs in other] == [summary(hs) for hs in together]

def test_hypotheses_are_different_and_without_special_tokens(any_model):
    for src, found in zip(SRC, beam_search(any_model, SRC, **IDS)):
        assert len({tuple(h.ids) for h in found}) == 4
        assert all({PAD, BOS, EOS}.isdisjoint(h.ids) and len(h.ids) + 1 <= (src != PAD).sum() + 50 for h in found)

def test_limits(any_model):
    "What never ends stops at the limit of its own source; what ends at once is empty."
    for src, found in zip(SRC, beam_search(biased(any_model, -100.), SRC, max_extra_tokens=5, **IDS)):
        assert [len(h.ids) + 1 for h in found] == [(src != PAD).sum() + 5] * 4
    assert beam_search(biased(any_model, 200.), SRC, **IDS)[0][0].ids == []

def test_learned_positions_are_a_limit():
    m = biased(model(positions='learned', max_len=8), -100.)
    assert {len(h.ids) + 1 for h in beam_search(m, SRC[:1], **IDS)[0]} == {8}

@pytest.mark.parametrize('T', [10, 40])
def test_each_token_is_read_once(T):
    "The decoder reads one position, then four a step."
    m, read = biased(model(), -100.), []
    m.decoder.register_forward_pre_hook(lambda module, args: read.append(args[0][..., 0].numel()))
    beam_search(m, SRC[2:, :2], max_extra_tokens=T - 2, **IDS)
    assert sum(read) == 1 + 4 * (T - 1)

@pytest.mark.parametrize('second', [lambda: model(1), lambda: recurrent(1)], ids=['transformer', 'recurrent'])
def test_an_ensemble(second):
    "One member, the same twice, two in either order; the first step is the mean of two distributions."
    one, two, src = model(0), second(), SRC[:1]
    alone = summary(beam_search(one, src, **IDS)[0])
    assert summary(beam_search([one], src, **IDS)[0]) == summary(beam_search([one, one], src, **IDS)[0]) == alone
    both = summary(beam_search([one, two], src, **IDS)[0])
    assert both == summary(beam_search([two, one], src, **IDS)[0]) != alone
    bos = torch.tensor([BOS])
    with torch.no_grad(): mean = (one(src, bos[None]).softmax(-1) + two(src, bos[None]).softmax(-1))[0] / 2
    assert_close(_next_log_probs([one, two], [one.init_state(src), two.init_state(src)], bos).exp(), mean)

def test_single_precision():
    "To 10⁻⁵ of the score."
    m = model().float()
    for h in beam_search(m, SRC[:1], **IDS)[0]: assert_close(h.log_prob, log_prob(m, SRC[0], h.ids), rtol=1e-5, atol=1e-5)

@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
def test_cuda():
    m = model().float()
    expected, found = beam_search(m, SRC, **IDS), beam_search(m.cuda(), SRC.cuda(), **IDS)
    assert [[h.ids for h in hs] for hs in found] == [[h.ids for h in hs] for hs in expected]
    assert_close([h.score for hs in found for h in hs], [h.score for hs in expected for h in hs], rtol=0, atol=1e-4)

def nan_weights(m):
    with torch.no_grad(): m.src_embed.weight[3] = math.nan
    return m

@pytest.mark.parametrize('models, options, message', [
    (lambda: model().train(), {}, 'model.eval()'),
    (lambda: [model(), model(1).train()], {}, 'model.eval()'),
    (lambda: [model(), model(vocab_size=9)], {}, 'differ in vocab_size'),
    (model, dict(max_extra_tokens=-1), 'max_extra_tokens=-1 must be at least'),
    (lambda: nan_weights(model()), {}, 'NaN'),
    (model, dict(allowed_tokens_fn=lambda rows, ids: torch.zeros(*ids.shape[:2], V, dtype=torch.bool)), 'allowed_tokens_fn forbids every token'),
    (model, dict(allowed_tokens_fn=_make_prefix_constraint([[5] * 99] * 3, V)), 'source 0 has no hypothesis')],
    ids=['training', 'training in an ensemble', 'vocabularies', 'limit', 'NaN', 'nothing allowed', 'long prefix'])
def test_messages(models, options, message):
    "A search that cannot work is refused with its reason."
    with pytest.raises(ValueError, match=re.escape(message)): beam_search(models(), SRC, **options, **IDS)
