"""The constraint of the tree search: it permits exactly the trees, counted against all short lines, and every search keeps to it, also that
of a model which has learned nothing."""
import itertools

import pytest
import torch

from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.tasks.parsing.constraints import _ParserState, tree_constraint
from annotated_transformer.tasks.parsing.trees import delinearize, linearize, read_trees

ALPHABET = ['(A', '(B', 'X', ')A', ')B']
VOCAB = ['<pad>', '<unk>', '<s>', '</s>', *('▁' + token for token in ALPHABET)]

def permitted_lines(n, budget, **bounds):
    "Every line of at most `budget` tokens that may be written over n words: a search that prunes nothing."
    allow = tree_constraint(VOCAB, [n], [budget + 1], eos_id=3, **bounds)
    lines, ids = set(), torch.tensor([[[2]]])                                # (1, n, t)
    while ids.size(1):
        allowed = allow(torch.tensor([0]), ids)[0]
        lines |= {tuple(VOCAB[i][1:] for i in line[1:]) for line in ids[0, allowed[:, 3]].tolist()}
        prefix, token = allowed[:, 4:].nonzero(as_tuple=True)
        ids = torch.cat([ids[0, prefix], token[:, None] + 4], 1)[None]
    return lines

def is_tree(line, n):
    "Over n words, with a bracket around a single word."
    try: delinearize(line, ['w'] * n)
    except ValueError: return False
    return line[0] != 'X'

def opened_at_a_word(line):
    "The most brackets that open at one word."
    return max(map(len, ''.join(t[0] for t in line).replace(')', 'X').split('X')))

def depth(line):
    "The most brackets that are open."
    return max(itertools.accumulate({'(': 1, ')': -1}.get(t[0], 0) for t in line))

@pytest.mark.parametrize('n, count', [(1, 14), (2, 14), (3, 26)])
def test_exactly_the_trees_are_permitted(n, count):
    "Of all 97,655 lines of at most seven tokens, `delinearize` accepts the same."
    lines = permitted_lines(n, 7)
    assert lines == {line for k in range(1, 8) for line in itertools.product(ALPHABET, repeat=k) if is_tree(line, n)}
    assert len(lines) == count

@pytest.mark.parametrize('max_opens, max_depth', [(1, 9), (9, 2), (2, 3)])
def test_bounds_leave_out_only_what_exceeds_them(max_opens, max_depth):
    "Brackets that open at one word, and that are open."
    lines = permitted_lines(1, 7)
    bounded = permitted_lines(1, 7, max_opens=max_opens, max_depth=max_depth)
    assert bounded == {line for line in lines if depth(line) <= max_depth and opened_at_a_word(line) <= max_opens} < lines

def test_trees_with_one_label():
    "Two words: one bracket holds both; an inner one the first, the second, or both; and so on."
    lines = {line for line in permitted_lines(2, 10) if '(B' not in line}
    assert [sum(line.count('(A') == k for line in lines) for k in (1, 2, 3, 4)] == [1, 3, 6, 10]

SENTENCE = '(S (NP (DT The) (NN model)) (VP (VBZ reads) (NP (DT a) (NN sentence)) (PP (IN with) (NP (NN attention)))) (. .))'

def test_a_tree_that_needs_all_of_its_budget_is_permitted():
    "Each of its tokens, and then eos alone."
    gold, = read_trees(SENTENCE)
    tokens, state = linearize(gold), _ParserState(len(gold.words))
    for i, token in enumerate(tokens):
        assert {'(': 'open', ')': 'close'}.get(token[0], 'word') in state.legal_actions(len(tokens) - i, max_opens=10, max_depth=40)
        state = state.advance(token)
    assert state.legal_actions(0, max_opens=10, max_depth=40) == {'end'}

LENGTHS = [1 + i % 15 for i in range(30)]

@pytest.fixture(scope='module')
def tokenizer():
    "Of words, for the labels of three trees."
    trees = read_trees(SENTENCE + '(SBAR (WHNP (WP who)) (S (VP (VBZ knows)))) (ADJP (JJ small))')
    return Tokenizer.train_word_level([' '.join(linearize(t)) for t in trees], 32)

@pytest.fixture(scope='module')
def search(tokenizer):
    "Searches with an untrained model, given a constraint: a tree for each of 30 sentences, None where it wrote something else."
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(32, N=1, d_model=32, d_ff=64, h=2)).eval()
    src = torch.zeros(30, 16, dtype=torch.long)
    for row, n in zip(src, LENGTHS): row[:n + 1] = torch.randint(4, 32, (n + 1,))
    def parse(constraint):
        trees = []
        for n, (best,) in zip(LENGTHS, beam_search(model, src, 4, .3, 40, 1, constraint, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id)):
            try: trees.append(delinearize(tokenizer.decode([best.ids])[0].split(), ['w'] * n))
            except ValueError: trees.append(None)
        return trees
    return parse

@pytest.fixture
def constraint(tokenizer):
    "A new constraint, given the limit of each sentence."
    return lambda limits: tree_constraint(tokenizer.convert_ids_to_tokens(range(32)), LENGTHS, limits, tokenizer.eos_id)

def test_noise_becomes_trees(search, constraint):
    "Over the right number of words; without the constraint hardly anything is a tree."
    assert search(None).count(None) > 25
    assert [t and len(t.words) for t in search(constraint([n + 41 for n in LENGTHS]))] == LENGTHS

def test_every_limit_is_kept(search, constraint):
    "With the least room there is one shape of tree; sentences at their limit and far from it do not disturb each other; a constraint serves twice."
    tight = search(constraint([n + 3 for n in LENGTHS]))
    assert [len(linearize(t)) for t in tight] == [n + 2 for n in LENGTHS]
    uneven = [n + 3 + 20 * (i % 2) for i, n in enumerate(LENGTHS)]
    mixed, again = search(constraint(uneven)), constraint(uneven)
    assert mixed[::2] == tight[::2] and [search(again), search(again)] == [mixed, mixed]
    assert all(len(linearize(t)) < limit for t, limit in zip(mixed, uneven))

def test_limits_without_a_tree_are_refused():
    "The message names the source, or the bound."
    with pytest.raises(ValueError, match='max_opens=0 must'): tree_constraint(VOCAB, [2], [9], 3, max_opens=0)
    for n, limit in (3, 5), (0, 9):
        with pytest.raises(ValueError, match=f'source 2: no tree of {n} words fits into {limit} tokens'): tree_constraint(VOCAB, [2, n], [9, limit], 3)
