"""Can the checks of the claims fail? Each fault of nbs/broken.csv is put into its cell, the page is run up to the last cell that
checks the claim, and one of these cells must notice. The first run of each page, without a fault, must pass."""
import csv
import json
import re

import pytest
from pages import ROOT, failing_cells, in_fresh_process

NBS = ROOT / 'nbs'
FAULTS = list(csv.DictReader((NBS / 'broken.csv').open(encoding='utf-8')))

def cells_until(page, claim):
    "(id, source, whether it checks the claim) of the cells that run, up to the last that checks it."
    cells = []
    for c in json.loads((NBS / f'{page}.ipynb').read_text(encoding='utf-8'))['cells']:
        source = ''.join(c['source'])
        if c['cell_type'] != 'code' or c['id'] == 'colab' or re.search(r'^#\| *(slow|gpu|eval: *false)', source, re.MULTILINE): continue
        marked = re.search(r'^#\| *claim:(.*)$', source, re.MULTILINE)
        cells.append((c['id'], source, bool(marked) and claim in marked[1].split()))
    return cells[:1 + max(i for i, (*_, checks) in enumerate(cells) if checks)]

def run(page, cells): return in_fresh_process(failing_cells, cells, (NBS / page).parent)

@pytest.mark.parametrize('fault', FAULTS, ids=lambda f: f'{f["claim"]}: {f["what"]}')
def test_a_fault_is_noticed(fault):
    cells = cells_until(fault['page'], fault['claim'])
    broken = [(key, source.replace(fault['old'], fault['new']) if key == fault['cell'] else source, checks) for key, source, checks in cells]
    assert broken != cells, f'{fault["old"]!r} is not in {fault["page"]}, {fault["cell"]}'
    failed, checked = run(fault['page'], broken)
    assert checked, f'no cell that checks {fault["claim"]} fails; others that do: {failed}'

@pytest.mark.parametrize('page', sorted({f['page'] for f in FAULTS}))
def test_without_a_fault_nothing_is_noticed(page):
    claims = [f['claim'] for f in FAULTS if f['page'] == page]
    assert run(page, max((cells_until(page, c) for c in claims), key=len)) == ([], [])
