"""Trees: brackets counted by hand, CKY against an enumeration of all parses, and, where the environment variable EVALB names the
compiled program, our scores against EVALB's. Where data/treebank is there, all of its trees are read and written too."""
import importlib.util
import os
import random

import numpy as np
import pytest
from helpers import ROOT

from annotated_transformer.tasks.parsing.treebank import read_treebank
from annotated_transformer.tasks.parsing.trees import Tree, _bracket_counts, linearize, read_trees, score_trees, delinearize


def test_a_root_that_only_wraps_counts_in_no_file():
    bare_tree, (predicted,) = '(S (NP (PRP We)) (VP (VBP parse)))', read_trees('(S (NP (PRP We)) (VP (VBP parse)))')
    for root in '({})', '(TOP {})', '(ROOT {})', '(S1 {})':
        gold = read_trees(root.format(bare_tree))
        scores = score_trees([predicted], gold)
        assert scores['F1'] == scores['recall'] == 100

@pytest.mark.parametrize('text', ['( (ROOT {}))', '(TOP (S1 {}))', '((S1 (ROOT {})))', '(ROOT {})'])
def test_roots_that_wrap_a_root(text):
    tree = '(S (NP (N fish)) (VP (V swim)))'
    assert str(read_trees(text.format(tree))[0]) == tree


spec = importlib.util.spec_from_file_location('parsing_baselines', ROOT / 'experiments' / 'parsing_baselines.py')

baselines = importlib.util.module_from_spec(spec)

spec.loader.exec_module(baselines)

EVALB, DATA = os.environ.get('EVALB'), ROOT / 'data' / 'treebank'

with_evalb = pytest.mark.skipif(not EVALB, reason='the environment variable EVALB names no program')

with_data = pytest.mark.skipif(not DATA.exists(), reason='data/treebank is not there')

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

def test_function_tags():
    "They are cut when scores are counted, too, for trees that were not read."
    gold, _ = pair('equal')
    assert _bracket_counts([Tree('S', (Tree('NP-SBJ-1', gold.children[0].children), Tree('VP=2', gold.children[1].children)))], [gold]).tolist() == [[3, 3, 3, 1]]

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

def all_parses(grammar, leaves, i, j, depth=4):
    "Symbol → log probabilities of its trees over a span, chains of at most `depth` rules."
    found = {}
    def add(symbol, logp): found.setdefault(symbol, []).append(logp)
    if j == i + 1:
        for s in np.flatnonzero(leaves[i] > -np.inf): add(s, leaves[i, s])
    for k in range(i + 1, j):
        left, right = all_parses(grammar, leaves, i, k), all_parses(grammar, leaves, k, j)
        for a, b, c, p in zip(*grammar.two):
            for x in left.get(b, []):
                for y in right.get(c, []): add(a, x + y + p)
    new = found
    for _ in range(depth):
        longer = {}
        for a, b, p in zip(*grammar.one):
            if b in new: longer.setdefault(a, []).extend(x + p for x in new[b])
        for symbol, logps in longer.items(): found.setdefault(symbol, []).extend(logps)
        new = longer
    return found

TEXT = '''(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN with) (NP (DT a) (NN dog)))))
          (S (NP (PRP it)) (VP (VBD saw) (NP (NP (DT the) (NN cat)) (PP (IN with) (NP (PRP it))))))
          (S (VP (VBD saw) (NP (NN cat))))'''

@pytest.mark.parametrize('settings', [{}, dict(parents=True, horizontal=1)])
def test_cky(settings):
    "The best of all parses, found one by one; the tree found is worth what the chart says."
    grammar = baselines.Grammar(read_trees(TEXT), **settings)
    root = grammar.index['ROOT']
    for sentence in 'it saw the cat with a dog', 'saw the dog', 'the cat saw a dog with it':
        words = sentence.split()
        leaves = grammar.leaves(words)
        found, logp = baselines.parse(grammar, words)
        assert found.words == words
        assert abs(max(all_parses(grammar, leaves, 0, len(words))[root]) - logp) < 1e-9
        forced = grammar.leaves(words, found.tags)          # the same tree, its tags given: no better one with them
        again, less = baselines.parse(grammar, words, found.tags)
        assert again == found and abs(less + sum(leaves[i, grammar.index[t]] for i, t in enumerate(found.tags)) - logp) < 1e-9 and forced.max() == 0
    assert baselines.parse(grammar, ['with'])[0] is None

def test_rules_sum_to_one():
    for settings in {}, dict(parents=True, horizontal=2):
        grammar = baselines.Grammar(read_trees(TEXT), **settings)
        total = np.zeros(len(grammar.symbols))
        for a, *_, p in (grammar.one, grammar.two): np.add.at(total, a, np.exp(p))
        assert np.allclose(total[total > 0], 1)

@with_data
def test_treebank():
    "Every tree there is survives being written and read; EVALB agrees where it is at hand."
    data = read_treebank(DATA)
    trees = data['train'] + data['development']
    assert [*map(len, data.values())] == [3396, 273]
    assert all(delinearize(linearize(t), t.words, t.tags) == t and delinearize(linearize(t, tags=True), t.words) == t for t in trees)
    assert read_trees('\n'.join(map(str, trees))) == trees
    if EVALB: agrees([baselines.right_branching(t.words, t.tags) for t in data['development']], data['development'])
