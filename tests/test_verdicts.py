"""Can a computed verdict come out otherwise? The cell that prints it is run on planted results, one for each word that it may say."""
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from annotated_transformer.analysis.heads import _alignment_comparisons
from annotated_transformer.analysis.statistics import decide
from annotated_transformer.analysis.table_3 import TABLE_3

NBS = Path(__file__).resolve().parents[1] / 'nbs'

def verdict(chapter, key, space):
    cells = json.loads((NBS / f'{chapter}.ipynb').read_text(encoding='utf-8'))['cells']
    source, = (''.join(c['source']) for c in cells if c.get('id') == key)
    with redirect_stdout(io.StringIO()) as out: exec(source, dict(space))
    line, = (line for line in out.getvalue().splitlines() if line.startswith('verdict: '))
    return line.removeprefix('verdict: ').partition(': ')[0]

def variations(p, **sides):
    "Effects of Table 3 as clear as they can be, on the side named, else open; p: that learned positions are as good."
    return dict(effects={row: (side, side - .5, side + .5) for row in TABLE_3 if row != 'base' for side in [sides.get(row, 0)]},
                _tost_p=lambda *_: p, losses={}, order=SimpleNamespace(statistic=0, pvalue=1))
PAPER = {row: 1 if v.ppl > TABLE_3['base'].ppl else -1 for row, v in TABLE_3.items()}
REVERSE = {row: -side for row, side in PAPER.items()}

def comparison(ours, best):
    scores = dict(transformer_tiny=ours, other=best)
    return dict(bleus=lambda name, _: scores[name], entered=[*scores], labels=dict(other='other'), budgets=('flops', 'seconds'), np=np)

def parsers(seeds, gap):
    return dict(gap=lambda *_: (gap, gap - 1, gap + 1), told=['told'], runs=dict(words=[0] * seeds, told=[0]), f1=lambda _: 90, mean=lambda _: 80)

def gradient(*left):
    divided = torch.ones(5, 2)
    return dict(widths=[4, 16, 64, 256, 1024], divided=divided, plain=divided * torch.tensor(left)[:, None])

def positions(*seen_past_far): return dict(np=np, sines=np.array([seen_past_far] * 3), table=np.array([(1., .3, 0.)] * 3))

def heads(numbers, captions):
    "Runs that lose so much more without the better aligned half of the heads."
    run = lambda dataset, gap: dict(dataset=dataset, alignment=[[.1] * 2], cross_attention=dict(best=[dict(loss=1 + gap)], worst=[dict(loss=1.)]))
    record = dict(runs=[run('numbers', gap) for gap in numbers] + [run('multi30k', gap) for gap in captions])
    return dict(read_json=lambda _: record, project_path=str, decide=decide, _alignment_comparisons=_alignment_comparisons)

CASES = {
    'C3.2b': ('lab/why_divide', 'saturation-check', [
        ('holds', gradient(1, 1, .1, .1, .1)), ('holds in part', gradient(1, 1, .6, .3, .1)), ('does not hold as stated', gradient(1, 1, 1, 1, 1))]),
    'C3.5c': ('62a_variations', 'claim-positions', [
        ('holds on a toy', variations(0) | dict(tie=True)), ('contradicted on a toy', variations(1, E_learned=1) | dict(tie=False)),
        ('contradicted on a toy', variations(1, E_learned=-1) | dict(tie=False)), ('not shown on a toy', variations(1) | dict(tie=False))]),
    'C3.5d': ('lab/positions', 'past-check-sines', [
        ('holds on a toy', positions(1, .9, .1)), ('holds on a toy', positions(1, .9, .8)), ('not shown on a toy', positions(1, .3, 0))]),
    'C6.1e': ('61d_comparison', 'claim', [
        ('holds on a toy', comparison([40, 41], [30, 31])), ('contradicted on a toy', comparison([20, 21], [30, 31])),
        ('not shown on a toy', comparison([30, 32], [31, 33]))]),
    'C6.2b': ('62a_variations', 'claim', [
        ('holds on a toy', variations(0, **PAPER)), ('holds in part on a toy', variations(1, A_h1=1)), ('mixed on a toy', variations(1, A_h1=1, C_N8=1)),
        ('contradicted on a toy', variations(1, **REVERSE)), ('not shown on a toy', variations(1))]),
    'C6.3a': ('lab/next_word', 'claim', [
        ('holds on a toy', parsers(2, 5)), ('contradicted on a toy', parsers(2, -5)), ('not shown on a toy', parsers(2, 0)),
        ('not shown on a toy', parsers(1, 5)), ('not shown on a toy', parsers(1, -5))]),
    'CA': ('lab/heads', 'appendix-check', [
        ('holds in part on a toy', dict(looks=[1], best=.95)), ('not shown on a toy', dict(looks=[1], best=.24)), ('not shown on a toy', dict(looks=[]))]),
    'CAb': ('80_visualizations', 'aligned-heads', [
        ('holds on a toy', heads([.3, .31, .29, .3, .32], [.2, .21, .19])), ('holds in part on a toy', heads([.3, .31, .29, .3, .32], [.2, .21])),
        ('mixed on a toy', heads([.3, .31, .29, .3, .32], [-.2, -.21, -.19])), ('contradicted on a toy', heads([-.3, -.31, -.29, -.3, -.32], [.2])),
        ('contradicted on a toy', heads([.01, 0, -.01, 0, .005], [.01, 0, .005])), ('not shown on a toy', heads([.9, -.1, .3, .1, 0], []))])}

@pytest.mark.parametrize('claim', CASES)
def test_every_word_can_be_had(claim):
    chapter, key, planted = CASES[claim]
    assert [verdict(chapter, key, space) for _, space in planted] == [word for word, _ in planted]
