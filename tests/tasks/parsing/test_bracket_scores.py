"""Bracket scores: brackets counted by hand, and, where the environment variable EVALB names the compiled program, our scores against
EVALB's, also on the trees of data/treebank if they are there."""
import importlib.util
import os
import random

import numpy as np
import pytest
from helpers import ROOT

from annotated_transformer.tasks.parsing.bracket_scores import _bootstrap_f1, _bracket_counts, _bracket_scores, score_trees
from annotated_transformer.tasks.parsing.treebank import read_treebank
from annotated_transformer.tasks.parsing.trees import Tree, read_trees
from annotated_transformer.utils.io import read_json

spec = importlib.util.spec_from_file_location('parsing_baselines', ROOT / 'experiments' / 'parsing_baselines.py')

baselines = importlib.util.module_from_spec(spec)

spec.loader.exec_module(baselines)

EVALB, DATA = os.environ.get('EVALB'), ROOT / 'data' / 'treebank'

with_evalb = pytest.mark.skipif(not EVALB, reason='the environment variable EVALB names no program')

def test_a_root_that_only_wraps_counts_in_no_file():
    bare_tree, (predicted,) = '(S (NP (PRP We)) (VP (VBP parse)))', read_trees('(S (NP (PRP We)) (VP (VBP parse)))')
    for root in '({})', '(TOP {})', '(ROOT {})', '(S1 {})':
        gold = read_trees(root.format(bare_tree))
        scores = score_trees([predicted], gold)
        assert scores['F1'] == scores['recall'] == 100

# gold, predicted, then brackets: matched, in gold, predicted
CASES = {
    'equal': ('(S (NP (PRP We)) (VP (VBP parse)))', '(S (NP (PRP We)) (VP (VBP parse)))', 3, 3, 3),
    'another label': ('(S (NP (PRP We)) (VP (VBP parse)))', '(S (NP (PRP We)) (NP (VBP parse)))', 2, 3, 3),
    'tags do not count': ('(S (NP (PRP We)) (VP (VBP parse)))', '(S (NP (XX We)) (VP (XX parse)))', 3, 3, 3),
    'punctuation does not count': ('(S (NP (PRP We)) (VP (VBP parse)) (. .))', '(S (NP (PRP We)) (VP (VBP parse) (. .)))', 3, 3, 3),
    'nor where it alone fills a constituent': ('(S (NP (PRP We)) (VP (VBP parse)) (. ?))', '(S (NP (PRP We)) (VP (VBP parse)) (PRN (. ?)))', 3, 3, 3),
    'brackets and currency count': ('(S (NP (-LRB- -LRB-) ($ $)) (VP (VBP lie)))', '(S (NP ($ -LRB-)) (VP ($ $) (VBP lie)))', 1, 3, 3),
    'ADVP is PRT': ('(VP (VB add) (PRT (RP up)))', '(VP (VB add) (ADVP (RB up)))', 2, 2, 2),
    'chains are kept': ('(S (VP (VB Parse)))', '(VP (VB Parse))', 1, 2, 1),
    'twice is twice': ('(NP (NP (NN a)))', '(NP (NN a))', 1, 2, 1),
    'and matched twice': ('(NP (NP (NN a)))', '(NP (NP (NN a)))', 2, 2, 2),
    'gold tags decide': ('(S (NP (PRP We)) (VP (VBP parse)) (. .))', '(S (NP (, We)) (VP (VBP parse) (XX .)))', 3, 3, 3),
    'TOP does not count': ('(S (VP (VB Parse)))', '(TOP (S (VP (VB Parse))))', 2, 2, 2),
    'crossing': ('(S (NP (DT a) (NN b)) (VP (VB c)))', '(S (DT a) (VP (NN b) (VB c)))', 1, 3, 2)}

def pair(name): return [read_trees(text)[0] for text in CASES[name][:2]]

@pytest.mark.parametrize('name', CASES)
def test_by_hand(name):
    gold, predicted = pair(name)
    assert _bracket_counts([predicted], [gold]).tolist() == [[*CASES[name][2:], 1]]

def test_a_row_for_each_sentence():
    "A tree with one bracket too many, the gold tree, and none; a seed resamples the same sentences again."
    gold, = read_trees('(S (NP (DT The) (NN model)) (VP (VBZ reads) (NP (DT a) (NN sentence)) (PP (IN with) (NP (NN attention)))) (. .))')
    other, = read_trees('(S (NP (DT The) (NN model)) (VP (VBZ reads) (NP (NP (DT a) (NN sentence)) (PP (IN with) (NP (NN attention))))) (. .))')
    rows = _bracket_counts([other, gold, None], [gold] * 3)
    assert rows.tolist() == [[6, 6, 7, 1], [6, 6, 6, 1], [0, 6, 0, 0]]
    assert np.array_equal(_bootstrap_f1(rows), _bootstrap_f1(rows))

def test_function_tags():
    "They are cut when scores are counted, too, for trees that were not read."
    gold, _ = pair('equal')
    assert _bracket_counts([Tree('S', (Tree('NP-SBJ-1', gold.children[0].children), Tree('VP=2', gold.children[1].children)))], [gold]).tolist() == [[3, 3, 3, 1]]

SHORT = read_trees('(S (NP (PRP We)) (VP (VBP parse)) (. .)) (S (NP (NNS Trees)) (VP (VBP grow) (ADVP (RB so) (RB very) (RB tall)))) (S (. .))')

def test_gold_trees_score_100_and_no_trees_score_0():
    "The ends of the scale; sentences of nothing but punctuation are left out."
    best, none = score_trees(SHORT, SHORT), score_trees([None] * 3, SHORT)
    assert best['F1'] == 100 and best['95 % interval'] == (100, 100) and best['sentences'] == 2
    assert (none['F1'], none['exact'], none['EVALB']['sentences']) == (0, 0, 0)

def test_which_sentences_are_scored():
    "Not those that are too long; a tree over other words is invalid; without a sentence there is no score."
    assert score_trees(SHORT, SHORT, max_words=3)['sentences'] == 1
    assert score_trees([SHORT[1], SHORT[1]], SHORT[:2])['invalid'] == 1
    with pytest.raises(ValueError, match='no sentence is left'): score_trees(SHORT[2:], SHORT[2:])
    with pytest.raises(ValueError, match='1 predictions, 3 gold trees'): score_trees(SHORT[:1], SHORT)

def test_recorded_scores_follow_from_recorded_counts():
    "A test of the record parsing_baselines.json: its scores, its intervals, and that every tree was read back."
    record = read_json(ROOT / 'nbs' / 'results' / 'parsing_baselines.json')
    for run in record['runs'].values():
        counts = np.array(run['counts'])
        for key, value in _bracket_scores(counts).items(): assert abs(run['all'][key] - value) < 1e-9
        assert np.allclose(np.percentile(_bootstrap_f1(counts), [2.5, 97.5]), run['all']['95 % interval'], atol=.5)
    assert record['data']['there_and_back'] == record['data']['train'] + record['data']['development']

def agrees(predicted, gold):
    "Our scores and EVALB's, for all and for at most 40 words."
    for theirs, longest in zip(baselines.evalb(EVALB, predicted, gold), (None, 40)):
        ours = score_trees(predicted, gold, longest)['EVALB']
        for key, value in theirs.items(): assert abs(ours[key] - value) < .00501, (key, ours[key], value)

@with_evalb
@pytest.mark.parametrize('name', CASES)
def test_evalb_by_hand(name):
    gold, predicted = pair(name)
    agrees([baselines.replace_tags(predicted, gold.tags)], [gold])

def random_tree(rng, words, depth=0):
    "Any tree over (tag, word) pairs, with chains, and labels that rules are about."
    if len(words) == 1 and rng.random() < .5 + .1 * depth: return Tree(words[0][0], word=words[0][1])
    label = rng.choice(['S', 'NP', 'VP', 'ADVP', 'PRT', 'PP', 'NP-SBJ', 'PRN=1'])
    cuts = sorted(rng.sample(range(1, len(words)), min(len(words) - 1, rng.randrange(3))))
    if not cuts and depth > 8: return Tree(label, tuple(Tree(tag, word=word) for tag, word in words))
    return Tree(label, tuple(random_tree(rng, words[a:b], depth + 1) for a, b in zip([0, *cuts], [*cuts, len(words)])))

@with_evalb
@pytest.mark.parametrize('seed', range(5))
def test_evalb_random(seed):
    "300 pairs of random trees, some predictions missing, over other words, or too short: EVALB leaves these out, and so do we beside ours."
    rng, gold, predicted = random.Random(seed), [], []
    for _ in range(300):
        words = [rng.choice([('NN', 'a'), ('VB', 'b'), (',', ','), ('.', '.'), ('``', '``'), ('RP', 'up'), ('-LRB-', '-LRB-'), ('$', '$')])
                 for _ in range(rng.randrange(1, 50))] + [('NN', 'end')]
        gold.append(random_tree(rng, words))
        predicted.append(rng.choices([random_tree(rng, words), gold[-1], None, random_tree(rng, words[1:-1] + [('NN', 'other')])], [8, 1, 1, 1])[0])
    agrees(predicted, gold)
    scores = score_trees(predicted, gold)
    assert scores['invalid'] > 10 and scores['recall'] < scores['EVALB']['recall'] and scores['precision'] == scores['EVALB']['precision']

@with_evalb
def test_evalb_raw():
    "EVALB finds in an untouched tree, with traces and function tags, what is left after reading."
    raw = '''( (S-1 (NP-SBJ (NP (DT The) (NN tree)) (SBAR (WHNP-2 (WDT that)) (S (NP-SBJ (-NONE- *T*-2)) (VP (VBD grew)))))
               (VP (VBD was) (VP (VBN cut) (NP (-NONE- *-1)) (ADVP (RP down)))) (. .)) )'''
    read, = read_trees(raw)
    line = ' '.join(raw.split()).replace('( (S', '(TOP (S', 1)
    guess = baselines.right_branching(read.words, read.tags)
    assert [*baselines.evalb(EVALB, [guess], [line])] == [*baselines.evalb(EVALB, [guess], [read])]
    assert baselines.evalb(EVALB, [read], [line])[0]['F1'] == 100

@with_evalb
@pytest.mark.skipif(not DATA.exists(), reason='data/treebank is not there')
def test_evalb_treebank():
    trees = read_treebank(DATA)['development']
    agrees([baselines.right_branching(t.words, t.tags) for t in trees], trees)
