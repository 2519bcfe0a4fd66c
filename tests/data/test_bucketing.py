"Batches of a few shapes: every pair once, the least padding, the same loss."
from itertools import combinations

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close

from annotated_transformer.data.batching import Batches
from annotated_transformer.data.bucketing import BucketedBatches, _bucket_lengths
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer


@pytest.fixture(scope='module')
def pairs():
    rng = np.random.default_rng(0)
    n_src, n_tgt = rng.integers(2, 30, 700), rng.integers(3, 40, 700)
    return Dataset.from_dict(dict(src=[rng.integers(4, 50, n) for n in n_src], tgt=[rng.integers(4, 50, n) for n in n_tgt], n_src=n_src, n_tgt=n_tgt))

@pytest.mark.parametrize('num_buckets, max_tokens', [(1, 40), (3, 300), (8, 2000), (500, 100_000)])
def test_every_pair_once_in_few_shapes(pairs, num_buckets, max_tokens):
    batches, shapes = BucketedBatches(pairs, max_tokens, num_buckets=num_buckets), set()
    for epoch in 0, 1:
        seen = []
        for i in range(len(batches)):
            src, tgt = batches[epoch * len(batches) + i]
            shapes.add((*src.shape, *tgt.shape))
            assert src.numel() <= batches.max_batch_tokens <= max_tokens and tgt[:, 1:].shape == src.shape
            seen += [(tuple(s[s != 0].tolist()), tuple(t[t != 0].tolist())) for s, t in zip(src, tgt) if t.any()]
        assert sorted(seen) == sorted((tuple(p['src']), tuple(p['tgt'])) for p in pairs)
    assert len(shapes) <= num_buckets
    again = BucketedBatches(pairs, max_tokens, num_buckets=num_buckets)
    assert all(torch.equal(a, b) for a, b in zip(batches[len(batches) + 1], again[len(batches) + 1]))

@pytest.mark.parametrize('num_buckets', [1, 2, 3])
def test_no_other_lengths_have_less_padding(num_buckets):
    longer = np.random.default_rng(1).integers(1, 20, 60)
    def padded(lengths): return sum(min(n for n in lengths if n >= x) for x in longer)
    best = min(padded([*some, 20]) for some in combinations(range(2, 20, 2), num_buckets - 1))
    assert padded([*_bucket_lengths(longer, num_buckets)]) == best

def test_two_lengths():
    assert [*_bucket_lengths(np.array([3, 3, 3, 4, 9, 10]), 2)] == [4, 10]

def test_the_loss_is_the_same(pairs):
    "The rows that fill a batch have no loss and no gradient, and there are some."
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(50, N=1, d_model=16, d_ff=16, h=2, P_drop=0.)).double()
    totals, rows = [], []
    for batches in Batches(pairs, 900), BucketedBatches(pairs, 900, num_buckets=3):
        loss = sum(model.loss(*batches[i])[0] for i in range(len(batches)))
        totals.append([loss, *torch.autograd.grad(loss, [*model.parameters()])])
        rows.append(sum(len(batches[i][0]) for i in range(len(batches))))
    assert rows[1] > rows[0] == 700
    for a, b in zip(*totals): assert_close(a, b, rtol=1e-10, atol=1e-9)

def test_what_does_not_fit(pairs):
    with pytest.raises(ValueError, match='a sentence of 38 tokens does not fit'): BucketedBatches(pairs, 37)
    odd = pairs.filter(lambda p: p['n_src'] < 38 and p['n_tgt'] < 39)
    with pytest.raises(ValueError, match='a bucket of 38 tokens does not fit into a batch of 37 tokens'): BucketedBatches(odd, 37)

def test_the_rows_that_fill_a_batch(pairs):
    "Their source is a sentence, so that attention has a key; batches are multiples of eight, where that many fit."
    batches = BucketedBatches(pairs, 900, num_buckets=3)
    assert all(batches[i][0].ne(0).any(1).all() and len(batches[i][0]) % 8 == 0 for i in range(len(batches)))
    assert all(900 // n - 8 < size <= 900 // n for size, n in batches.shapes)

def test_epochs_and_seeds_differ(pairs):
    def epoch(seed, n):
        batches = BucketedBatches(pairs, 900, seed=seed, num_buckets=3)
        return [tuple(batches[n * len(batches) + i][0].flatten().tolist()) for i in range(len(batches))]
    assert epoch(0, 0) == epoch(0, 0)
    for other in epoch(0, 1), epoch(1, 0): assert {*other}.isdisjoint(epoch(0, 0))
