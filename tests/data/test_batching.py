"Batches: every pair once an epoch, within the budget, a function of seed and position alone."
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence

from annotated_transformer.data.batching import Batches, _split_into_batches, make_batches, tokenize_dataset
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.utils.io import project_path, read_json

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

def test_a_loop_gives_one_epoch(pairs):
    "The first; a step before it is refused."
    data = Batches(pairs, 500)
    assert all(x.equal(y) for i, batch in enumerate(data) for x, y in zip(batch, data[i])) and len([*data]) == len(data)
    with pytest.raises(IndexError, match='steps are counted from 0'): data[-1]

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

def text(n=40): return Dataset.from_dict(dict(source=NAMES['en'][:n], target=NAMES['de'][:n]))

@pytest.fixture(scope='module')
def tokenizer(): return Tokenizer.train(NAMES['en'] + NAMES['de'], 120, byte_fallback=False)

def longest(ids): return np.maximum(ids['n_src'][:], np.array(ids['n_tgt'][:]) - 1)

def test_lengths_in_the_columns_are_those_of_the_rows(tokenizer):
    "Nothing is dropped that need not be."
    ids = tokenize_dataset(text(), tokenizer)
    assert len(ids) == 40
    for side in 'src', 'tgt': assert ids[f'n_{side}'][:] == [*map(len, ids[side])]

def test_workers_give_the_same_rows_in_the_same_order(tokenizer):
    "Two processes share the work."
    one, two = (tokenize_dataset(text(), tokenizer, num_proc=n) for n in (None, 2))
    for name in one.column_names: assert one[name][:] == two[name][:]

def test_long_pairs_are_dropped_and_counted(tokenizer, capsys):
    "Those with more than max_len tokens on a side, and no others."
    n = longest(tokenize_dataset(text(), tokenizer))
    limit = int(n.max()) - 1
    assert len(tokenize_dataset(text(), tokenizer, max_len=limit)) == (n <= limit).sum()
    assert f'dropped {(n > limit).sum()} of 40 pairs with more than max_len={limit} tokens' in capsys.readouterr().out

def test_long_pairs_are_named_or_their_source_is_cut(tokenizer):
    "The first that is too long, also where another process finds it; a corpus of which nothing is left is refused."
    n = longest(tokenize_dataset(text(), tokenizer))
    limit = int(n.max()) - 1
    first = int((n > limit).argmax())
    with pytest.raises(ValueError, match=f'pair {first + 1} has'): tokenize_dataset(text(), tokenizer, limit, 'error')
    later = text().select([*np.flatnonzero(n <= limit)[:9], first])
    with pytest.raises(ValueError, match='pair 10 has'): tokenize_dataset(later, tokenizer, limit, 'error', 2)
    with pytest.raises(ValueError, match='no pair has at most max_len=1'): tokenize_dataset(text(), tokenizer, 1)
    with pytest.raises(ValueError, match="overlong='crop': use 'drop', 'error' or 'truncate'"): tokenize_dataset(text(), tokenizer, 12, 'crop')
    pair = Dataset.from_dict(dict(source=[NAMES['en'][399]], target=['eins']))
    whole, cut = (tokenize_dataset(pair, tokenizer, *options)['src'][0] for options in ((), (6, 'truncate')))
    assert cut == whole[:5] + [tokenizer.eos_id]

def split_by_loop(src, tgt, budget, overhead=.1):
    "The end of each batch at which a token costs least, all ends tried one by one."
    def cost(s, t): return (len(s) * (max(s) + max(t)) + overhead * 2 * budget) / (sum(s) + sum(t))
    ends = [0]
    while (start := ends[-1]) < len(src):
        fits = [e for e in range(start + 1, len(src) + 1) if (e - start) * max(*src[start:e], *tgt[start:e]) <= budget]
        if len(fits) >= 8: fits = fits[7::8]
        ends.append(min(fits, key=lambda e: cost(src[start:e], tgt[start:e])))
    return ends[1:-1]

def test_split_by_hand():
    "Eight pairs of length 2 and sixteen of length 3: the first batch ends where the lengths change."
    lengths = [2] * 8 + [3] * 16
    assert split_by_loop(lengths, lengths, 48) == _split_into_batches(np.array(lengths), np.array(lengths), 48) == [8]

@pytest.mark.parametrize('budget', [30, 100, 1000])
def test_split_against_a_loop(budget):
    "Arrays find the ends that a loop finds."
    src, tgt = np.random.default_rng(0).integers(1, 30, (2, 300))
    assert _split_into_batches(src, tgt, budget) == split_by_loop(src.tolist(), tgt.tolist(), budget)

def test_batches_by_hand():
    "Eight lengths in disorder, each with a target of length 1, and a budget of 8."
    lengths = np.array([3, 8, 2, 3, 2, 5, 3, 2])
    batches = make_batches(lengths, np.ones(8, int), max_tokens=8)
    assert sorted(sorted(lengths[rows].tolist()) for rows in batches) == [[2, 2, 2], [3], [3, 3], [5], [8]]

@pytest.fixture(scope='module')
def lengths(): return np.random.default_rng(0).integers(3, 20, (2, 4000))

def test_batches_are_those_of_the_zigzag_order(lengths):
    "Sorted by the longer side, then by the difference alternately up and down, and cut: the same sizes."
    longer, difference = np.maximum(*lengths), lengths[0] - lengths[1]
    order = np.lexsort((np.where(longer % 2, difference, -difference), longer))
    batches = np.split(order, _split_into_batches(lengths[0][order], lengths[1][order], 500))
    assert Counter(map(len, batches)) == Counter(map(len, make_batches(*lengths, 500)))

def test_seed_and_epoch_decide_who_shares_a_batch(lengths):
    "The same for the same two; otherwise hardly any batch recurs, but their number stays."
    def batches(seed=0, epoch=0): return [frozenset(rows.tolist()) for rows in make_batches(*lengths, 500, seed, epoch)]
    assert batches() == batches()
    for other in batches(seed=1), batches(epoch=1): assert len(other) == len(batches()) and len({*batches()} & {*other}) < len(other) / 10

@pytest.mark.parametrize('seed', range(3))
def test_lengths_come_in_random_order(lengths, seed):
    "The mean length of a batch hardly correlates with its place in the epoch."
    means = [lengths.max(0)[rows].mean() for rows in make_batches(*lengths, 500, seed)]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < .3

@pytest.mark.parametrize('workers', [2, 4, 8])
@pytest.mark.parametrize('budget', [4096, 25_000])
def test_workers_get_equal_shares(budget, workers):
    "Less than two percent between the largest shard of a batch and the mean, in real tokens."
    src, tgt = np.random.default_rng(0).integers(3, 20, (2, 20_000))
    loads = [[(src + tgt)[rows[i::workers]].sum() for i in range(workers)] for rows in make_batches(src, tgt, budget)]
    assert np.mean([max(load) / np.mean(load) - 1 for load in loads]) < .02

def test_rectangles_equal_pytorchs_padding(pairs):
    "For every batch of an epoch; the id of padding is whatever is asked for."
    data, other = Batches(pairs, 500), Batches(pairs, 500, pad_id=777)
    for i, rows in enumerate(data.get_epoch_batches(0)):
        for side, got in zip(('src', 'tgt'), data[i]):
            assert torch.equal(got, pad_sequence([torch.tensor(ids) for ids in pairs[rows][side]], True, 0))
    assert (other[0][0] == 777).sum() == (data[0][0] == 0).sum()

def test_decoded_batches_are_the_text(tokenizer):
    "Row by row; and the target tokens with loss, over an epoch, are each target's tokens and its eos."
    data, corpus = Batches(ids := tokenize_dataset(text(), tokenizer), 200, tokenizer.pad_id), text()
    for i, rows in enumerate(data.get_epoch_batches(0)):
        src, tgt = (tokenizer.decode([*side]) for side in data[i])
        assert [*zip(src, tgt)] == [(corpus[int(row)]['source'], corpus[int(row)]['target']) for row in rows]
    assert sum((data[i][1][:, 1:] != tokenizer.pad_id).sum() for i in range(len(data))) == sum(ids['n_tgt'][:]) - len(ids)

def test_memory_does_not_grow_with_the_corpus():
    "As recorded by benchmarks/data.py: a million pairs take the memory of a quarter of a million."
    run = read_json(project_path('nbs/results/data_cpu.json'))
    small, large = (run[size]['first']['anonymous_MB'] for size in ('250000 pairs', '1000000 pairs'))
    assert large < 1.1 * small
