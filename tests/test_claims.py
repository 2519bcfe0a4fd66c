"""Can the checks of the claims fail? Each fault of nbs/broken.csv is put into its cell, the cell that checks the claim is run with
those that it needs, and must notice; without the fault all must pass. And each verdict that a cell
prints is turned: the cell is run on planted results, one for each word that it may say."""
import csv
import dis
import json
import re
from io import StringIO
from contextlib import redirect_stdout
from types import CodeType

import numpy as np
import pytest
import torch
from pages import ROOT, failing_cells, in_fresh_process

from annotated_transformer.analysis.statistics import Comparison, _combine, decide
from annotated_transformer.model.config import count_parameters, presets

NBS = ROOT / 'nbs'
FAULTS = list(csv.DictReader((NBS / 'broken.csv').open(encoding='utf-8')))
CLAIMS = {row['id']: row for row in csv.DictReader((NBS / 'claims.csv').open(encoding='utf-8'))}

def names(source):
    "Global names that a cell assigns, those that it reads before it assigns them, and those that its functions read."
    code = compile(source, 'cell', 'exec')
    assigned, read, late = set(), set(), set()
    for i in dis.get_instructions(code):
        if i.opname == 'STORE_NAME': assigned.add(i.argval)
        elif i.opname == 'LOAD_NAME' and i.argval not in assigned: read.add(i.argval)
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    for c in inner:
        inner += [const for const in c.co_consts if isinstance(const, CodeType)]
        late |= {i.argval for i in dis.get_instructions(c) if i.opname == 'LOAD_GLOBAL'} - assigned
    return assigned, read, late

def cells_of(page, checks, called=frozenset()):
    "(id, source, whether it checks) of these cells, and of those before them that define what they read or call."
    cells, needed, late = [], set(called), set()
    for c in reversed(json.loads((NBS / f'{page}.ipynb').read_text(encoding='utf-8'))['cells']):
        source = ''.join(c['source'])
        if c['cell_type'] != 'code' or not cells and c['id'] not in checks or c['id'] == 'colab': continue
        assigned, read, calls = names(source)
        if c['id'] in checks or needed & assigned or re.search(r'^(from|import|@patch)\b', source, re.MULTILINE):
            cells.insert(0, (c['id'], source, c['id'] in checks))
            needed = needed - assigned | read | calls
            late |= calls
    return cells if late <= called else cells_of(page, checks, late | called)

def unnoticed(page, faults):
    "What is wrong with the faults of a page: a check that fails without a fault, or does not notice one. To be run in a process of its own."
    wrong, folder = [], (NBS / page).parent
    for checks in sorted({f['checks'] for f in faults}):
        if (found := failing_cells(cells_of(page, checks.split()), folder)) != ([], []): wrong.append(f'without a fault {found[0]} fail')
    for f in faults:
        cells = cells_of(page, f['checks'].split())
        broken = [(key, source.replace(f['old'], f['new']) if key == f['cell'] else source, checks) for key, source, checks in cells]
        if broken == cells: wrong.append(f'{f["old"]!r} is not in {page}, {f["cell"]}')
        elif not failing_cells(broken, folder)[1]: wrong.append(f'{f["claim"]}: {f["what"]}: {f["checks"]} does not fail')
    return wrong

@pytest.mark.parametrize('page', sorted({f['page'] for f in FAULTS}))
def test_each_fault_is_noticed(page): assert in_fresh_process(unnoticed, page, [f for f in FAULTS if f['page'] == page]) == []

def verdicts(page, keys, space):
    "Claim → the word that these cells print on planted results."
    cells = {c.get('id'): ''.join(c['source']) for c in json.loads((NBS / f'{page}.ipynb').read_text(encoding='utf-8'))['cells']}
    space = dict(np=np, torch=torch, Comparison=Comparison, decide=decide, _combine=_combine) | space
    with redirect_stdout(StringIO()) as out:
        for key in keys: exec(cells[key], space)
    return dict(re.findall(r'^verdict (\S+): (\w+)', out.getvalue(), re.MULTILINE))

def seeds(mean, n=5, step=.001): return [mean + step * i for i in range(n)]

def table_3(n=5, **rows):
    "Loss, BLEU and accuracy of each row beside base: 0, or as far away as is said."
    def values(row, key):
        gap = rows.get(row, 0) * dict(loss=1).get(key, -1)
        return seeds(2. + gap, 7, .002) if row == 'base' else seeds(2. + gap, n)
    return dict(values=values, BLEU='lower-cased tokenised BLEU', label=str)
AS_IN_THE_PAPER = dict(A_h1=1, A_h32=1, B_dk16=1, B_dk32=1, C_N2=1, C_N4=1, C_N8=-1, C_d256=1, C_d1024=-1, C_dff1024=1, C_dff4096=-1, D_drop0=1, D_ls0=-1)
TABLE_3_CLAIMS = 'C6.2b', 'C6.2c', 'C6.2d', 'C6.2e', 'C6.2f', 'C5.4b'

def lookups(narrow, wide, short):
    "Errors of undivided dot products beside additive attention, which has none."
    return dict(compared={('additive', d_k): seeds(0.) for d_k in (2, 4, 256)} | {('plain', 2): seeds(narrow, step=.0015), ('plain', 4): seeds(narrow, step=.0015),
                ('plain', 256): seeds(wide, step=.0015), ('plain, short start', 256): seeds(short, step=.0015)})

def gradient(*left):
    divided = torch.ones(5, 2)
    return dict(widths=[4, 16, 64, 256, 1024], divided=divided, plain=divided * torch.tensor(left)[:, None])

def table_2(end, equal, n=5):
    "Tuned runs of two systems of equal cost: by how many BLEU the Transformer is ahead in each pair."
    def run(seed, end, equal): return {'seed': seed, 'steps': 2, 'lower-cased tokenised BLEU': 30 + end, 'bleu_curve': [(1, 20.), (2, 30 + equal)]}
    names = 'Transformer', 'other'
    planted = [[run(i, e, f) for i, (e, f) in enumerate(zip(seeds(end, n), seeds(equal, n)))], [run(i, 0, 0) for i in range(n)]]
    record = dict(costs=dict(cpu={name: dict(flops=1.) for name in names}),
                  systems={name: dict(tried=[dict(valid_loss=1.)], runs=runs) for name, runs in zip(names, planted)})
    return dict(project_path=lambda _: None, read_json=lambda _: record)

def parsers(scores, grammar):
    return dict(gap=lambda *_: (0, 0, 0), next_word='next_word', tags_pre='tags', runs=dict(words=[1.], tags=scores, next_word=[99.]), f1=lambda run: run, mean=lambda _: grammar, record=dict(split=dict(train=1)))

PAPER_MILLIONS = dict(base=65, B_dk16=58, B_dk32=60, C_N2=36, C_N4=50, C_N8=80, C_d256=28, C_d1024=168, C_dff1024=53, C_dff4096=90, big=213)
def counted(**printed):
    "A column of counts as they are with 37,000 tokens, in whole millions, but for the rows that are said."
    return dict(presets=presets, count_parameters=count_parameters, paper_millions={name: round(count_parameters(presets[name]) / 1e6) for name in PAPER_MILLIONS} | printed)

def crossings(attention, cell):
    "Operations at n = d/2."
    return dict(work={'self-attention, as in the table': [attention], 'self-attention': [attention + 8], 'LSTM': [16], 'GRU': [cell]}, cells=['LSTM', 'GRU'], d=32, ns=[16])

def positions(learned, sinusoidal, past=.9):
    "Exact matches of either kind at the lengths of training; of sinusoids past them."
    return dict(share={(kind, i): (end + .001 * (i - 5) * (kind == 'learned'), past + .001 * (i - 5), .1) for kind, end in (('sinusoidal', sinusoidal), ('learned', learned)) for i in range(5, 10)})

def short_paths(attention, dilated, fold, seeds=5):
    "Updates of three layers at n = 128, by seed; their paths are 1, 5 and 128."
    layers = dict(attention=(1, attention), dilated=(5, dilated), fold=(128, fold))
    return dict(names=[*layers], far=128, limit=300,
                arms={(name, 128): dict(path=path, updates=[min(300, u + s * path) for s in range(seeds)]) for name, (path, u) in layers.items()})

def bracketed(tokens):
    facts = dict(train=1, development=1, there_and_back=2, labels=1, tags=1, unseen_words=1, tokens=tokens, words=10, most_words=1, most_tokens=1)
    return dict(project_path=lambda _: None, read_json=lambda _: dict(command='', machine='', versions={}, data=facts))

PLANTED = [   # page, cells, claim, word, results
    ('lab/why_divide', ['saturation-check'], 'C3.2h', 'confirmed', gradient(1, 1, .6, .3, .1)),
    ('lab/why_divide', ['saturation-check'], 'C3.2h', 'undecided', gradient(1, 1, 1, .9, .5)),
    ('lab/why_divide', ['saturation-check'], 'C3.2h', 'contradicted', gradient(1, 1, 1, 1, 1)),
    ('lab/why_divide', ['cost-verdict'], 'C3.2i', 'confirmed', dict(spent={16: (1, 2, 2), 64: (1, 9, 9)})),
    ('lab/why_divide', ['cost-verdict'], 'C3.2i', 'undecided', dict(spent={16: (1, .5, 2), 64: (1, 9, 2)})),
    ('lab/why_divide', ['cost-verdict'], 'C3.2i', 'contradicted', dict(spent={16: (1, .1, .1), 64: (1, .9, .1)})),
    ('lab/why_divide', ['learn-verdict'], 'C3.2g', 'confirmed', lookups(.01, 1., 1.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2g', 'contradicted', lookups(.5, 1., 1.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2g', 'undecided', lookups(.0485, 1., 1.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2j', 'confirmed', lookups(.01, 1., 1.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2j', 'undecided', lookups(.01, 1., 0.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2j', 'contradicted', lookups(.01, -1., -1.)),
    ('lab/why_divide', ['learn-verdict'], 'C3.2j', 'equivalent', lookups(.01, 0., 0.)),
    ('lab/what_waits', ['short-verdict'], 'C4f', 'confirmed', short_paths(20, 60, 290)),
    ('lab/what_waits', ['short-verdict'], 'C4f', 'contradicted', short_paths(60, 20, 290)),
    ('lab/what_waits', ['short-verdict'], 'C4f', 'undecided', short_paths(20, 270, 290)),
    ('lab/what_waits', ['short-verdict'], 'C4f', 'undecided', short_paths(20, 60, 290, seeds=4)),
    ('lab/positions', ['past-check'], 'C3.5c', 'confirmed', positions(.995, 1.)),
    ('lab/positions', ['past-check'], 'C3.5c', 'contradicted', positions(.9, 1.)),
    ('lab/positions', ['past-check'], 'C3.5c', 'undecided', positions(.979, 1.)),
    ('lab/positions', ['past-check', 'past-check-sines'], 'C3.5d', 'confirmed', positions(1., 1., .9)),
    ('lab/positions', ['past-check', 'past-check-sines'], 'C3.5d', 'contradicted', positions(1., 1., .2)),
    ('lab/positions', ['past-check', 'past-check-sines'], 'C3.5d', 'equivalent', positions(1., 1., .5)),
    ('lab/heads', ['appendix-check'], 'CAb', 'confirmed', dict(looks=[1], best=seeds(.96))),
    ('lab/heads', ['appendix-check'], 'CAb', 'contradicted', dict(looks=[1], best=seeds(.2))),
    ('lab/heads', ['appendix-check'], 'CAb', 'undecided', dict(looks=[1], best=.95)),
    ('40_why_self_attention', ['cross-verdict'], 'C4e', 'confirmed', crossings(10, 12)),
    ('40_why_self_attention', ['cross-verdict'], 'C4e', 'contradicted', crossings(10, 8)),
    ('10_introduction', ['en-fr-verdict'], 'C6.1g', 'confirmed', dict(en_fr={'abstract': 41.8, 'section 6.1': 41.8})),
    ('10_introduction', ['en-fr-verdict'], 'C6.1g', 'contradicted', dict(en_fr={'abstract': 41.8, 'section 6.1': 41.0})),
    ('36_transformer', ['cell-059', 'vocabulary-verdict'], 'C6.2a', 'confirmed', counted()),
    ('36_transformer', ['cell-059', 'vocabulary-verdict'], 'C6.2a', 'contradicted', counted(big=210)),
    ('36_transformer', ['cell-059', 'vocabulary-verdict'], 'C6.2a', 'contradicted', counted(**PAPER_MILLIONS)),
    *[('61d_comparison', ['record', 'claim'], key, word, table_2(**{'end': 0., 'equal': 0., part: gap}, n=n))
      for key, part in {'C6.1e': 'end', 'C6.1f': 'equal'}.items()
      for word, gap, n in (('confirmed', 1., 5), ('contradicted', -1., 5), ('equivalent', 0., 5), ('undecided', 1., 4))],
    ('63a_trees', ['record'], 'C6.3b', 'confirmed', bracketed(25)),
    ('63a_trees', ['record'], 'C6.3b', 'contradicted', bracketed(15)),
    ('lab/next_word', ['claim'], 'C6.3c', 'undecided', parsers([90.], 75.)),
    ('lab/next_word', ['claim'], 'C6.3c', 'confirmed', parsers(seeds(90., step=.1), 75.)),
    ('lab/next_word', ['claim'], 'C6.3c', 'contradicted', parsers(seeds(60., step=.1), 75.)),
    *[('62a_variations', ['claim', 'claim-verdicts'], claim, word, table_3(**rows)) for claim in TABLE_3_CLAIMS for word, rows in [
        ('confirmed', AS_IN_THE_PAPER), ('contradicted', {row: -side for row, side in AS_IN_THE_PAPER.items()}), ('equivalent', {}), ('undecided', dict(n=4) | AS_IN_THE_PAPER)]],
    ('62a_variations', ['claim', 'claim-verdicts'], 'C6.2e', 'contradicted', table_3(**AS_IN_THE_PAPER | dict(C_N8=1))),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C5.4c', 'confirmed', table_3(D_ls0=1)),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C5.4c', 'contradicted', table_3(D_ls0=-1)),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C5.4c', 'equivalent', table_3()),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C3.5c', 'confirmed', table_3()),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C3.5c', 'contradicted', table_3(E_learned=1)),
    ('62a_variations', ['claim', 'claim-verdicts'], 'C3.5c', 'undecided', table_3(n=4))]

@pytest.mark.parametrize('page, keys, claim, word, space', PLANTED, ids=[f'{claim}: {word}' for _, _, claim, word, _ in PLANTED])
def test_planted_results_turn_the_verdict(page, keys, claim, word, space):
    assert verdicts(page, keys, space)[claim] == word

@pytest.mark.parametrize('claim', [key for key, row in CLAIMS.items() if row['kind'] != 'not tested'])
def test_every_check_is_tried(claim):
    assert claim in {f['claim'] for f in FAULTS} or len({word for *_, key, word, _ in PLANTED if key == claim}) > 1
