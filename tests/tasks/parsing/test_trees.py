"""Trees: roots that wrap, and CKY against an enumeration of all parses. Where data/treebank is there, all of its trees are read and
written too."""
import importlib.util

import numpy as np
import pytest
from helpers import ROOT

from annotated_transformer.tasks.parsing.bracket_scores import _bracket_spans
from annotated_transformer.tasks.parsing.treebank import read_treebank
from annotated_transformer.tasks.parsing.trees import Tree, delinearize, linearize, read_trees


@pytest.mark.parametrize('text', ['( (ROOT {}))', '(TOP (S1 {}))', '((S1 (ROOT {})))', '(ROOT {})'])
def test_roots_that_wrap_a_root(text):
    tree = '(S (NP (N fish)) (VP (V swim)))'
    assert str(read_trees(text.format(tree))[0]) == tree

def test_one_tree_over_several_lines():
    "Trees are separated by brackets and not by lines, whatever the line's end."
    trees = read_trees('(S (NP (NN a))\n   (VP (VB b)))\n(NP (NN c))')
    assert [*map(str, trees)] == ['(S (NP (NN a)) (VP (VB b)))', '(NP (NN c))']
    assert read_trees('\r\n'.join(map(str, trees))) == trees

@pytest.mark.parametrize('text, tree', [
    ('((S (SBAR (S (NP (-NONE- *)) (VP (-NONE- *)))) (VP (VB Go))))', '(S (VP (VB Go)))'),           # what traces leave empty goes, however deep
    ('( (X (LS 1)) (NP=2-TMP (NN day)) )', '(TOP (X (LS 1)) (NP (NN day)))'),                        # an unnamed root with two parts
    ('(NP (NP-SBJ (-LRB- -LRB-)) (ADVP|PRT (RB up)))', '(NP (NP (-LRB- -LRB-)) (ADVP|PRT (RB up)))'),
    ('(NP (NP (NN day)) (SBAR (-NONE- 0)))', '(NP (NP (NN day)))')])                                 # the chain that a trace leaves is kept
def test_traces_and_function_tags_are_removed(text, tree):
    "What the Penn Treebank has and a parser does not write."
    assert str(*read_trees(text)) == tree

@pytest.mark.parametrize('text, message', {
    '(S (NN a)': 'a.mrg, line 1: bracket never closed', '(S (NN a)))': 'is outside', 'word': 'is outside',
    '(S\n(NP))': 'a.mrg, line 2: the bracket is empty', '()': 'empty', '(S\n\n(NN a b))': 'a.mrg, line 3: a word needs a bracket of its own',
    '(S (NN a) b)': 'a word needs', '(S ( (NN a)))': 'only the outermost', '( (S (-NONE- *)))': 'no words', '(-NONE- *)': 'no words'}.items())
def test_malformed_brackets_are_refused(text, message):
    "The message names the file and the line."
    with pytest.raises(ValueError, match=message): read_trees(text, 'a.mrg')

@pytest.mark.parametrize('args, message', [
    (('NP',), 'either children or a word'), (('NP', (Tree('NN', word='a'),), 'a'), 'either children or a word'),
    *[(args, 'is not a label or word') for args in (('', (), 'a'), ('N N', (), 'a'), ('NN', (), '('), ('NN)', (Tree('NN', word='a'),)))]])
def test_impossible_trees_are_refused(args, message):
    "A tree has children or a word, and names without blanks and brackets."
    with pytest.raises(ValueError, match=message): Tree(*args)

@pytest.mark.parametrize('line, message', {
    ')S': 'no bracket is open', '( XX': 'has no label', '(S )S': 'is empty', '(S XX )NP': r"token 3, '\)NP': S is open", '(S XX XX': 'no word is left',
    '(S XX )S )S': 'was complete', '(S (NP XX )NP': 'S is open', '': 'no tokens'}.items())
def test_sequences_that_are_not_trees_are_refused(line, message):
    "The message names the token."
    with pytest.raises(ValueError, match=message): delinearize(line.split(), ['a'])

def test_words_and_tags_must_fit_the_sequence():
    "A word too many, a tag too many."
    with pytest.raises(ValueError, match='words left: 1'): delinearize(['(S', 'XX', ')S'], ['a', 'b'])
    with pytest.raises(ValueError, match='2 tags for 1 words'): delinearize(['XX'], ['a'], ['NN', 'NN'])

def test_trees_may_be_deep():
    "No recursion: a chain of 3,000 constituents is written and read (compared as text: `==` recurses)."
    tree = Tree('NN', word='a')
    for _ in range(3000): tree = Tree('S', (tree,))
    again = delinearize(linearize(tree), tree.words, tree.tags)
    assert str(again) == str(tree)
    assert _bracket_spans(again)['S', 0, 1] == 3000


spec = importlib.util.spec_from_file_location('parsing_baselines', ROOT / 'experiments' / 'parsing_baselines.py')

baselines = importlib.util.module_from_spec(spec)

spec.loader.exec_module(baselines)

DATA = ROOT / 'data' / 'treebank'

with_data = pytest.mark.skipif(not DATA.exists(), reason='data/treebank is not there')

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
    "Every tree there is survives being written and read."
    data = read_treebank(DATA)
    trees = data['train'] + data['development']
    assert [*map(len, data.values())] == [3396, 273]
    assert all(delinearize(linearize(t), t.words, t.tags) == t and delinearize(linearize(t, tags=True), t.words) == t for t in trees)
    assert read_trees('\n'.join(map(str, trees))) == trees
