"N-best lists of texts."
from types import SimpleNamespace

from annotated_transformer.inference.beam_search import Hypothesis
from annotated_transformer.inference.n_best import _n_best_texts
from annotated_transformer.inference.translator import Translator

TEXT = ['seven', 'two hundred and twelve', 'ninety-nine', 'one hundred and five']

def test_n_best_holds_no_text_twice(trained):
    found = Translator.from_pretrained(trained).n_best(TEXT, n=4, beam=8)
    for best in found: assert len(best) == 4 and len({text for text, _ in best}) == 4

def test_ranks_of_parts_are_joined_and_a_blank_text_has_none():
    tokenizer = SimpleNamespace(decode=lambda texts: [f'w{ids[0]}' for ids in texts])
    first, second = [Hypothesis([1], -1., -1.), Hypothesis([2], -2., -2.)], [Hypothesis([3], -4., -4.), Hypothesis([4], -8., -8.)]
    def best(parts, hypotheses, n, distinct): return _n_best_texts(parts, hypotheses, n, distinct, tokenizer, dict(source_lang='en', target_lang='de'))
    assert best(['a. ', 'b.'], [first, second], 2, True) == [('w1 w3', -5.), ('w2 w4', -10.)]
    assert best(['a.'], [[first[0]] * 2], 2, False) == [('w1', -1.)] * 2 and best(['a.'], [[first[0]] * 2], 2, True) == [('w1', -1.), ('', -float('inf'))]
    assert best([], [], 2, True) == [('', 0.)] * 2
