"Scores at the edges of what they take."
import pytest

from annotated_transformer.inference.metrics import bleu, significance


@pytest.mark.parametrize('lang, lines', dict(zh=['我们在公园里散步。', '他读了一本书。'], ja=['私たちは公園を歩いた。', '彼は本を読んだ。'], th=['เราเดินในสวน', 'เขาอ่านหนังสือ'], zh_TW=['今天很冷。', '明天會下雨。']).items())
def test_a_perfect_translation_has_no_score_of_zero(lang, lines):
    scores = bleu(lines * 9, lines * 9, lang)
    assert all(value > 99.9 for value in scores.values() if isinstance(value, float)) and not [name for name in scores if 'tokenised' in name]

def test_scores_that_can_be():
    right = ['a cat sat on the mat today', 'no dog ran over the red road'] * 5
    low, high = bleu(['the mat a'] * 10, right)['95 % interval'].split(' to ')
    assert 0 <= float(low) <= float(high) <= 100
    assert significance(right, [r + '  ' for r in right], right) == (0, 1) and significance(right, right, right) == (0, 1)
    with pytest.raises(ValueError, match='no sentences to score'): bleu([], [])

def test_significance_of_nothing():
    with pytest.raises(ValueError, match='no sentences'): significance([], [], [])
