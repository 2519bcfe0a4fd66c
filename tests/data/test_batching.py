"Batches: every pair once an epoch, within the budget, a function of seed and position alone."
import numpy as np
import pytest
from datasets import Dataset

from annotated_transformer.data.batching import Batches, tokenize_dataset, make_batches
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer

NAMES = {lang: [number_speller(lang)(n) for n in range(400)] for lang in ('en', 'de')}

@pytest.fixture(scope='module', params=['en', 'de'])          # longer and shorter sources
def pairs(request):
    tokenizer = Tokenizer.train(NAMES['en'] + NAMES['de'], 120, byte_fallback=False)
    target = dict(en='de', de='en')[request.param]
    return tokenize_dataset(Dataset.from_dict(dict(source=NAMES[request.param], target=NAMES[target])), tokenizer)

@pytest.mark.parametrize('max_tokens', [64, 500, 100_000])
def test_every_pair_once_an_epoch_within_the_budget(pairs, max_tokens):
    batches = Batches(pairs, max_tokens)
    for epoch in 0, 1:
        seen = []
        for i in range(len(batches)):
            src, tgt = batches[epoch * len(batches) + i]
            assert src.numel() <= max_tokens and tgt[:, 1:].numel() <= max_tokens
            seen += [(tuple(s[s != 0].tolist()), tuple(t[t != 0].tolist())) for s, t in zip(src, tgt)]
        assert sorted(seen) == sorted((tuple(p['src']), tuple(p['tgt'])) for p in pairs)

def test_a_position_gives_the_same_batch_in_any_order(pairs):
    a, b = Batches(pairs, 500, seed=1), Batches(pairs, 500, seed=1)
    places = [*range(2 * len(a) + 3)]
    forward = [a[i] for i in places]
    backward = [b[i] for i in reversed(places)][::-1]
    assert all(x.equal(y) for p, q in zip(forward, backward) for x, y in zip(p, q))

def test_epochs_and_seeds_differ(pairs):
    a, b = Batches(pairs, 500, seed=0), Batches(pairs, 500, seed=1)
    order = lambda batches, epoch: [tuple(batches[epoch * len(batches) + i][0].flatten().tolist()) for i in range(len(batches))]
    assert order(a, 0) != order(a, 1) and order(a, 0) != order(b, 0) and sorted(order(a, 0)) != sorted(order(b, 0))

def test_little_is_padding():
    "A batch in the order of the file is a third padding; sorted by length it is a few per cent."
    rng = np.random.default_rng(0)
    src = rng.integers(3, 60, 4000)
    tgt = np.maximum(3, src + rng.integers(-5, 6, 4000))
    padded = sum(len(rows) * (src[rows].max() + tgt[rows].max()) for rows in make_batches(src, tgt, 4096))
    assert 1 - (src + tgt).sum() / padded < .1

def test_a_sentence_that_is_too_long_is_named():
    with pytest.raises(ValueError, match='a sentence of 70 tokens does not fit into a batch of 64'): make_batches(np.array([3, 70]), np.array([3, 4]), 64)
