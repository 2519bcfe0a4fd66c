"""Heads removed by alignment: a head that is masked is a head whose slice of W_O is zero, the orders are those within a layer, the measure of
alignment gives what was planted, and each verdict can be had."""
import importlib
from copy import deepcopy
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from annotated_transformer.analysis.heads import _alignment_comparisons, mask_head
from annotated_transformer.analysis.statistics import decide
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer
from helpers import ROOT

KINDS = dict(encoder=('encoder', 'self_attn'), decoder=('decoder', 'self_attn'), memory=('decoder', 'cross_attn'))

@pytest.fixture
def heads(monkeypatch):
    "experiments/heads.py as a module."
    monkeypatch.syspath_prepend(str(ROOT / 'experiments'))
    return importlib.import_module('heads')

@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(TransformerConfig(vocab_size=20, N=3, d_model=24, d_ff=16, h=4, d_v=5)).eval()

def without_slices(model, kind, heads):
    "A copy of the model in which the slices of W_O of some (layer, head) are zero."
    model, (stack, sublayer) = deepcopy(model), KINDS[kind]
    for layer, head in heads: getattr(getattr(model, stack).layers[layer], sublayer).W_O.weight.data[:, 5 * head:5 * head + 5] = 0
    return model

@torch.no_grad()
@pytest.mark.parametrize('kind', KINDS)
def test_a_masked_head_is_its_slice_of_W_O_set_to_zero(heads, model, kind):
    src, tgt = torch.randint(3, 20, (2, 7)), torch.randint(3, 20, (2, 6))
    translator, whole = SimpleNamespace(models=[model]), model(src, tgt)
    for layer, head in (0, 0), (1, 2), (2, 3):
        with mask_head(translator, kind, layer, head): assert torch.equal(model(src, tgt), without_slices(model, kind, [(layer, head)])(src, tgt))
    expected = without_slices(model, kind, [(0, 1), (0, 3), (2, 0)])(src, tgt)
    with heads.ExitStack() as stack:
        heads.remove_heads(stack, translator, kind, [[1, 3], [], [0]])
        assert torch.equal(model(src, tgt), expected) and not torch.equal(expected, whole)
    assert torch.equal(model(src, tgt), whole)

def test_a_head_comes_back_after_an_error_and_must_exist(model):
    translator, before = SimpleNamespace(models=[model]), deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match='^broken inside$'), mask_head(translator, 'encoder', 0, 2): raise RuntimeError('broken inside')
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for head in -1, 4:
        with pytest.raises(IndexError, match=f'head {head} is out of range: 0 to 3'), mask_head(translator, 'encoder', 0, head): pass

def test_heads_are_ordered_within_their_layer(heads):
    alignment = torch.tensor([[.1, .3, .2, .0], [.6, .9, .7, .8]])              # the worst of layer 1 is better than the best of layer 0
    found = heads.orders(alignment, 3)
    assert found['best'] == [[1, 2, 0, 3], [1, 3, 2, 0]] and found['worst'] == [[3, 0, 2, 1], [0, 2, 3, 1]]
    draws = [found[f'random {i}'] for i in range(3)]
    assert all(sorted(layer) == [0, 1, 2, 3] for draw in draws for layer in draw) and draws[0] != draws[1] and draws == [*heads.orders(1 - alignment, 3).values()][2:]

def test_counterparts_of_tokens(heads):
    assert heads.number_links(21, ['▁twen', 'ty', '-', 'one'], ['▁', 'ein', 'und', 'zwan', 'zig']).astype(int).tolist() == [
        [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    das_haus = [([1, 2], [12, 11]), *[([3, 2], [13, 12]), ([1, 4], [11, 14])] * 20]          # 1 is 11, 2 is 12 …; the first pair is crossed, against the prior
    assert [link.astype(int).tolist() for link in heads.estimated_links(das_haus, 3)] == [[[0, 1], [1, 0]], [[1, 0], [0, 1]], [[1, 0], [0, 1]]]

def test_counterparts_beside_model_1_by_loops(heads):
    "The same pairs of random ids, one table entry after the other."
    draw = np.random.default_rng(0)
    pairs = [(draw.integers(6, size=m).tolist(), draw.integers(6, size=n).tolist()) for m, n in draw.integers(1, 7, (40, 2))]
    def prior(i, j, n, m): return np.exp(-4 * abs((i + .5) / n - (j + .5) / m))
    t = dict.fromkeys(product(range(6), range(6)), 1.)
    for _ in range(5):
        count = dict.fromkeys(t, 0.)
        for given, written in pairs:
            for i, w in enumerate(written):
                weights = [t[g, w] * prior(i, j, len(written), len(given)) for j, g in enumerate(given)]
                for g, weight in zip(given, weights): count[g, w] += weight / sum(weights)
        t = {(g, w): c / sum(count[g, v] for v in range(6)) for (g, w), c in count.items()}
    expected = [[int(np.argmax([t[g, w] * prior(i, j, len(written), len(given)) for j, g in enumerate(given)])) for i, w in enumerate(written)] for given, written in pairs]
    assert [found.tolist() for found in heads.best_counterparts(pairs)] == expected

def test_alignment_is_the_weight_on_counterparts(heads, monkeypatch):
    W = torch.zeros(1, 2, 4, 3)                          # two heads, three tokens and </s> by two tokens and </s>
    W[0, 0, :3], W[0, 0, 3, 0], W[0, 1] = torch.tensor([.1, .7, .2]), 1, 1 / 3
    monkeypatch.setattr(heads, '_attention_weights', lambda *_: dict(memory=W))
    links = np.array([[0, 1], [0, 0], [1, 0]], bool)     # the second token has no counterpart
    alignment, chance = heads.head_alignment(None, [dict(src=[5, 6, 3], tgt=[2, 7, 8, 9, 3])] * 2, [links] * 2)
    assert alignment[0].tolist() == pytest.approx([.4, 1 / 3]) and chance == pytest.approx(1 / 3)

def planted(numbers, captions):
    "A record whose runs lose so much more without the better aligned half; what is removed before and after the half says the reverse."
    def run(dataset, gap):
        curve = lambda half: [dict(loss=9 - 9 * half), dict(loss=half), dict(loss=9 - 9 * half)]
        return dict(dataset=dataset, alignment=[[.1] * 4] * 2, cross_attention=dict(best=curve(1 + gap), worst=curve(1)))
    return dict(runs=[run('numbers', gap) for gap in numbers] + [run('multi30k', gap) for gap in captions])

@pytest.mark.parametrize(('gaps', 'verdicts'), [
    (([.3, .31, .29, .3, .32], [.2, .21, .19]), ['confirmed', 'confirmed']), (([-.3, -.31, -.29, -.3, -.32], [.2, .21]), ['contradicted', 'undecided']),
    (([.01, 0, -.01, 0, .005], [.01, 0, .005]), ['equivalent within 0.05', 'equivalent within 0.05']), (([.9, -.1, .3, .1, 0], []), ['undecided', 'undecided'])])
def test_verdicts_of_planted_records(gaps, verdicts):
    assert [d.verdict for d in decide(_alignment_comparisons(planted(*gaps)))] == verdicts
