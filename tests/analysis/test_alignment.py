"Parts of number names and their gold alignment."
import pytest

from annotated_transformer.analysis.alignment import _name_parts, gold_alignment
from annotated_transformer.data.number_names import number_speller, sample_numbers


def test_parts_join_to_the_name_and_align_one_to_one():
    "Numbers of the corpus and of each kind: both languages have the same keys, each once."
    for n in sample_numbers(0)[::5] + [1001, 100_001, 101_000, 900_000]:
        keys = []
        for lang in 'en', 'de':
            parts = _name_parts(n, lang)
            assert ''.join(text for text, _ in parts) == number_speller(lang)(n)
            keys.append([key for _, key in parts if key])
        assert sorted(keys[0]) == sorted(keys[1]) and len({*keys[0]}) == len(keys[0])

@pytest.mark.parametrize('char_level, shape', [(False, (3, 3)), (True, (len('einundzwanzig'), len('twenty-one')))])
def test_alignment_of_21(char_level, shape):
    "ein-und-zwanzig by twenty-(hyphen)-one, and their letters."
    alignment = gold_alignment(21, char_level)
    assert alignment.shape == shape
    if not char_level: assert alignment.int().tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
