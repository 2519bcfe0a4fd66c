"Splits are held out by source sentence; what given splits share with train is counted."
import pytest

from annotated_transformer.data.splits import _complete_splits, _hold_out
from annotated_transformer.data.text_files import _write_arrow

PAIRS = [(f'sentence {i}', f'Satz {i}, Fassung {j}') for j in range(3) for i in range(100)]

def hold_out(pairs, seed=0): return {name: [*zip(part['source'], part['target'])] for name, part in _hold_out(_write_arrow(pairs), ['valid', 'test'], seed).items()}

def test_all_translations_of_a_sentence_are_in_one_split():
    "No pair is lost or moved."
    splits = hold_out(PAIRS)
    assert {name: len(part) for name, part in splits.items()} == dict(valid=15, test=15, train=270)
    assert all(part == [p for p in PAIRS if p in part] for part in splits.values())
    assert sum(len({source for source, _ in part}) for part in splits.values()) == 100

def test_the_seed_decides_and_not_the_order():
    assert {*hold_out(PAIRS[::-1])['test']} == {*hold_out(PAIRS)['test']} != {*hold_out(PAIRS, seed=1)['test']}

def test_at_most_a_thousand_sentences():
    splits = hold_out([(str(i), str(-i)) for i in range(25_001)])
    assert {name: len(part) for name, part in splits.items()} == dict(valid=1000, test=1000, train=23_001)

def test_too_few_sentences():
    with pytest.raises(ValueError, match='2 different source sentences are too few'): hold_out(PAIRS[:2])

def test_given_splits_are_kept(capfd):
    splits = _complete_splits(dict(train=_write_arrow(PAIRS), test=_write_arrow([('sentence 1', 'Satz 1'), ('new', 'neu')])))
    assert {name: len(part) for name, part in splits.items()} == dict(train=285, valid=15, test=2)
    assert 'test: 1 of 2 source sentences are in train, too' in capfd.readouterr().out
