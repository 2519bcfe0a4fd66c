"Scores at the edges of what they take."
import math
import random
from collections import Counter

import pytest
import sacrebleu

from annotated_transformer.inference.metrics import bleu, significance, tokenised_bleu


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

def by_definition(hypotheses, references):
    "BLEU of Papineni et al. (2002): the geometric mean of clipped n-gram precisions, times a penalty for what is short."
    right, all_, lengths = [0] * 4, [0] * 4, [0, 0]
    for h, r in zip(map(str.split, hypotheses), map(str.split, references)):
        lengths = [lengths[0] + len(h), lengths[1] + len(r)]
        for n in range(1, 5):
            ours, theirs = (Counter(tuple(x[i:i + n]) for i in range(len(x) - n + 1)) for x in (h, r))
            right[n - 1] += (ours & theirs).total()
            all_[n - 1] += ours.total()
    if not min(right): return 0.
    return 100 * min(1, math.exp(1 - lengths[1] / lengths[0])) * math.exp(sum(math.log(a / b) for a, b in zip(right, all_)) / 4)

def texts(seed, n=40):
    rng = random.Random(seed)
    references = [rng.choices('the a cat dog sat ran on under mat road .'.split(), k=rng.randrange(5, 15)) for _ in range(n)]
    hypotheses = [[rng.choice(r) if rng.random() < .2 else w for w in r if rng.random() < .95] for r in references]
    return [[' '.join(x) for x in side] for side in (hypotheses, references)]

@pytest.mark.parametrize('seed', range(5))
def test_bleu_by_its_definition(seed):
    hypotheses, references = texts(seed)
    assert tokenised_bleu(hypotheses, references) == pytest.approx(by_definition(hypotheses, references))

@pytest.mark.parametrize('seed', range(3))
def test_sacrebleu(seed):
    hypotheses, references = texts(seed)
    scores = bleu(hypotheses, references)
    assert scores['sacreBLEU'] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores['chrF'] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert scores['signature'].startswith('nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp')

def test_bleu_is_one_number_for_a_corpus():
    "The order of sentences means nothing, twice the corpus is the same corpus, and the mean of parts is another number."
    hypotheses, references = texts(0)
    whole = tokenised_bleu(hypotheses, references)
    assert tokenised_bleu(hypotheses[::-1], references[::-1]) == pytest.approx(whole)
    assert tokenised_bleu(hypotheses * 2, references * 2) == pytest.approx(whole)
    halves = [tokenised_bleu(hypotheses[part], references[part]) for part in (slice(20), slice(20, None))]
    assert sum(halves) / 2 != pytest.approx(whole, abs=1e-3)
