"Drawings of attention, with the committed translator: they show what was computed, and ask for nothing from outside."
import json
import re

import matplotlib.pyplot as plt
import pytest
import torch
from helpers import ROOT

from annotated_transformer.analysis.attention_maps import _ATTENTION_TYPES, _query_and_key_tokens, _select_query, plot_attention_lines, view_attention
from annotated_transformer.inference.translator import Translator

SENTENCE = 'A dog runs.'

@pytest.fixture(scope='module')
def translator(): return Translator.from_pretrained(ROOT / 'nbs/results/multi30k_en_de')

@pytest.fixture(scope='module')
def attention(translator): return translator.attention(SENTENCE)

def shown_by(view): return json.loads(re.search(r'json">(.*?)</script>', view, re.DOTALL)[1])

def test_tokens_on_both_sides(attention):
    "As many as the weights have rows and columns; the decoder's columns begin with <s>."
    for kind in _ATTENTION_TYPES: assert attention[kind].shape[2:] == tuple(map(len, _query_and_key_tokens(attention, kind)))
    assert _query_and_key_tokens(attention, 'decoder')[1][:2] == ['<s>', attention['target'][0]]
    with pytest.raises(ValueError, match="unknown kind 'cross': use encoder"): _query_and_key_tokens(attention, 'cross')

def test_the_view_shows_what_was_computed(translator, attention):
    "Whole percents of each weight, in a small page without any address."
    view = view_attention(translator, SENTENCE)
    assert not re.search(r'https?:|src=|href=|url\(|import|fetch|\bid=', view) and len(view) < 50_000
    torch.testing.assert_close(torch.tensor(shown_by(view)['kinds']['memory']['weights']) / 100, attention['memory'], rtol=0, atol=.005001)

def test_a_sentence_cannot_end_the_script(translator):
    "HTML in a sentence stays text; an empty sentence has a view, too."
    view, odd = view_attention(translator, SENTENCE), view_attention(translator, '</script><b>dog')
    assert odd.count('</script>') == view.count('</script>') and '<b>' not in odd
    empty = shown_by(view_attention(translator, ''))['kinds']['memory']
    assert empty['sides'][1] == ['</s>'] and empty['first'] == 0

def test_the_token_that_is_selected_first():
    "The one with the largest weight on one key, ends left out."
    W = torch.tensor([[.2, .2, .6], [.5, .4, .1], [.9, .1, 0]])
    assert _select_query(dict(source=['on', 'e', '</s>'], target=['ein', 's', '</s>'], memory=W[None, None]), 'memory') == 1

def test_a_line_is_as_strong_as_its_weight(translator, attention):
    "One line for each weight above 5 %."
    ax = plot_attention_lines(translator, SENTENCE, heads=[1], rows=[1])
    W = attention['memory'][-1, 1, 1]
    assert [line.get_alpha() for line in ax.lines[1:]] == pytest.approx(W[W > .05].tolist())
    assert [text.get_text() for text in ax.texts] == attention['target'] + attention['source']
    plt.close(ax.figure)
