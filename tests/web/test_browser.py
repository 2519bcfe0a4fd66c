"Weights of the page: rounding by hand; heads taken out of the model in two ways."
from itertools import product

import pytest
import torch
from helpers import number_lines
from torch.testing import assert_close

from annotated_transformer.analysis.heads import mask_head
from annotated_transformer.inference.translator import Translator
from annotated_transformer.web.browser import _apply_merges, _quantize, _translate_ablated


def test_rounding_by_hand():
    "A row keeps its largest number, and zero stays zero."
    stored, dequantized = _quantize(torch.tensor([[127., -2.4, 0], [0, 0, 0]]), 8)
    assert_close(dequantized, torch.tensor([[127., -2, 0], [0, 0, 0]]))
    assert stored[0, 4:].view(torch.int8).tolist() == [127, -2, 0]

@pytest.mark.parametrize('bits, limit', [(16, 32767), (8, 127)])
def test_rounding_moves_nothing_by_more_than_half_a_step(bits, limit):
    W = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    half_step = W.abs().amax(1, keepdim=True) / limit / 2
    assert ((_quantize(W, bits)[1] - W).abs() <= 1.01 * half_step).all()

def test_the_best_rank_is_merged_first():
    "A pair that is no token stays apart, and an empty sentence has no tokens."
    ranks = {'▁t': -1, 'en': -2, '▁ten': -3}
    assert [_apply_merges(ranks, s) for s in ('ten', 'often', '')] == [['▁ten'], ['▁', 'o', 'f', 't', 'en'], []]

def test_an_ablated_head_is_a_masked_head(trained):
    "A hook before the output projection writes what zero columns of W^O write."
    translator, lines = Translator.from_pretrained(trained, device='cpu'), number_lines('en', 15).split('\n')[10:]
    for kind, head in product(('encoder', 'decoder', 'memory'), range(4)):
        ablated = _translate_ablated(translator, lines, [f'{kind} 0 {head}'])
        with mask_head(translator, kind, 0, head): assert translator.translate(lines) == ablated
