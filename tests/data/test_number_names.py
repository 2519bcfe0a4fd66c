"Names as num2words spells them, one sample on every machine, ids for every character, and a loop that learns."
import pytest
import torch
from num2words import num2words
from torch import nn

from annotated_transformer.analysis.alignment import gold_alignment
from annotated_transformer.data.number_names import (
    BOS, EOS, PAD, SYMBOLS, decode_characters, encode_characters, exact_match, number_names, number_speller, random_batches, sample_numbers, seeded_shuffle, shift_right, train_toy)


@pytest.fixture(scope='module')
def numbers(): return sample_numbers(0)

@pytest.mark.parametrize('lang', ['en', 'de', 'fr'])
def test_names_are_those_of_num2words(lang):
    numbers = [n * 999 + 1 for n in range(1000)]
    assert [*map(number_speller(lang), numbers)] == [num2words(n, lang=lang) for n in numbers]

def test_names_by_hand():
    names = {0: 'null', 1: 'eins', 16: 'sechzehn', 21: 'einundzwanzig', 101: 'einhunderteins', 7_030: 'siebentausenddreißig',
             21_365: 'einundzwanzigtausenddreihundertfünfundsechzig', 200_000: 'zweihunderttausend'}
    assert {n: number_speller('de')(n) for n in names} == names

def test_sample(numbers):
    "No number is drawn twice, and the sample is the same wherever the code runs."
    assert (len(numbers), len(set(numbers)), min(numbers)) == (21000, 21000, 0)
    assert numbers[:4] == [543801, 53647, 3305, 34239]
    assert seeded_shuffle('abcdefgh', seed=0) == list('dhfcebga')

def test_reordering_in_the_sample(numbers):
    "Most names swap tens and ones; none of the first 2,000 has more than two steps back in its alignment."
    assert sum('-' in english for english, _ in number_names(numbers)) > .5 * len(numbers)
    def steps_back(n):
        positions = [row.int().argmax().item() for row in gold_alignment(n) if row.any()]
        return sum(a > b for a, b in zip(positions, positions[1:]))
    assert max(map(steps_back, numbers[:2000])) == 2

def test_characters(numbers):
    "Every character of the corpus has an id; no German name is longer than `greedy_decode` says."
    assert {x for pair in number_names(numbers) for text in pair for x in text} <= set(SYMBOLS)
    assert max(len(german) for _, german in number_names(range(0, 10**6, 7))) <= 67
    assert decode_characters(encode_characters(['twenty-one', 'two'])) == ['twenty-one', 'two']
    assert shift_right(torch.tensor([[5, 6, EOS]])).tolist() == [[BOS, 5, 6]]
    with pytest.raises(ValueError, match="'onze!': '!'"): encode_characters(['twenty one', 'onze!'])

class Speller(nn.Module):
    "A GRU encoder and decoder, with attention or with the encoder's last state only."
    def __init__(self, attention, d=64):
        super().__init__()
        self.attention, self.embed, self.out = attention, nn.Embedding(len(SYMBOLS), d), nn.Linear(2 * d, len(SYMBOLS))
        self.encoder, self.decoder = nn.GRU(d, d // 2, batch_first=True, bidirectional=True), nn.GRU(d, d, batch_first=True)

    def forward(self, src, tgt):
        memory, _ = self.encoder(self.embed(src))
        last = memory[torch.arange(len(src)), (src != PAD).sum(1) - 1]
        state, _ = self.decoder(self.embed(tgt), None if self.attention else last[None])
        scores = (state @ memory.mT).masked_fill((src == PAD)[:, None], -1e9)
        context = (scores / memory.size(-1) ** .5).softmax(-1) @ memory
        return self.out(torch.cat([state, context if self.attention else torch.zeros_like(state)], -1))

def test_the_loop_learns():
    "Held-out names after 200 steps: most with attention, few from a single vector, none before."
    numbers, correct = seeded_shuffle(range(1000), seed=0), {}
    learned, held_out = number_names(numbers[:800]), number_names(numbers[800:])
    for attention in True, False:
        torch.manual_seed(0)
        model = Speller(attention)
        assert sum(exact_match(model, held_out)) == 0
        train_toy(model, random_batches(learned), steps=200, lr=2e-2)
        correct[attention] = sum(exact_match(model, held_out))
    assert correct[True] > .8 * len(held_out) and correct[False] < correct[True] / 4
