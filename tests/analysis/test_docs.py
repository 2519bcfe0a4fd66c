"What the pages of the site are made of: anchors, links, the font for formulas, and what a citation says."
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from execnb.nbio import dict2nb
from nbdev.config import get_config
from nbdev.process import NBProcessor

from annotated_transformer.analysis.docs import _AnchorProc, _MathProc, _RelativeLinkProc

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ConfigParser()
SETTINGS.read(ROOT/'settings.ini', encoding='utf-8')
SETTINGS = SETTINGS['DEFAULT']

def page(procs, *cells, path='x.ipynb'):
    "The cells (id, kind, source, outputs) after the processors."
    nb = dict2nb(dict(cells=[dict(cell_type=kind, id=key, source=source, metadata={}, **(dict(outputs=outputs) if kind == 'code' else {}))
                             for key, kind, source, *outputs in cells], metadata={}, nbformat=4, nbformat_minor=5))
    nb.path_ = ROOT / 'nbs' / path
    NBProcessor(nb=nb, procs=procs, process=True)
    return nb.cells

def places(cells):
    "The ids that the page has, in order: of spans, headings and cells, the last by their labels if they have one."
    ids = []
    for c in cells:
        if c.cell_type == 'code': ids += re.findall(r'^#\| *label: *(\S+)', c.source, re.MULTILINE) or [c.id]
        else: ids += re.findall(r'\{#([\w.-]+)\}', c.source) + [h.lower().replace(' ', '-') for h in re.findall(r'^#+ +(.+)', c.source, re.MULTILINE)]
    return ids

def test_every_cell_and_definition_has_one_place():
    "An id may be the name of what the cell defines, a heading, or both; a class and a function may differ in case alone."
    cells = page([_AnchorProc], ('h', 'markdown', '## Sort Once'), ('sort-once', 'code', 'sort([2, 1])'),
                 ('sort', 'code', '#| exports\nclass Sort:\n    def run(self): pass\n\ndef sort(xs): return sorted(xs)'),
                 ('again', 'code', '#| exports\ndef sort(xs): return xs'), ('picture', 'code', '#| label: fig-sorted\n#| claim: C3.2a\nsort([])'))
    assert places(cells) == ['sort-once', 'at-sort-once', 'sort', 'sort.run', 'at-sort', 'at-again', 'at-picture', 'fig-sorted']
    assert 'claim' not in cells[-1].source

@pytest.mark.parametrize('path, up', [('x.ipynb', ''), ('lab/x.ipynb', '../'), ('library/tasks/parsing/x.ipynb', '../../../')])
def test_links_within_the_site_are_relative(path, up):
    c = get_config(cfg_name=ROOT/'settings.ini')
    here, text = f'{c.doc_host}{c.doc_baseurl}', 'See [`f`]({}/x.html#f) and [there](https://example.org/x.html).'
    shown = dict(output_type='display_data', metadata={}, data={'text/markdown': ['one\n', text.format(here)]})
    markdown, code = page([_RelativeLinkProc], ('a', 'markdown', text.format(here)), ('b', 'code', 'show()', shown), path=path)
    expected = f'See [`f`]({up}x.html#f) and [there](https://example.org/x.html).'
    assert markdown.source == expected and code.outputs[0].data['text/markdown'] == f'one\n{expected}'

@pytest.mark.parametrize('before, after', [
    ('$f(x)$ (or so)', '$f{(}x{)}$ (or so)'), ('$$\\sigma(a)\n= (b)$$', '$$\\sigma{(}a{)}\n= {(}b{)}$$'),
    ('$\\left(\\frac ab\\right)(c)$', '$\\left(\\frac ab\\right){(}c{)}$'), ('$\\bigl( a \\bigr)$', '$\\bigl( a \\bigr)$'),
    ('`$(x)$` costs $5 (or) $6', '`$(x)$` costs $5 (or) $6')])
def test_a_parenthesis_grows_only_where_the_formula_says_so(before, after): assert page([_MathProc], ('a', 'markdown', before))[0].source == after

def test_font_of_formulas():
    "What the style sheet asks for is there, goes to the site with its licence, and is light."
    name = re.search(r'url\(([\w-]+\.woff2)\)', (ROOT/'nbs'/'styles.css').read_text(encoding='utf-8'))[1]
    resources = yaml.safe_load((ROOT/'_quarto.yml').read_text(encoding='utf-8'))['project']['resources']
    licence = next(r for r in resources if r == name.replace('.woff2', '.txt'))
    assert name in resources and 'GUST Font License' in (ROOT/'nbs'/licence).read_text(encoding='utf-8')
    data = (ROOT/'nbs'/name).read_bytes()
    assert data[:4] == b'wOF2' and len(data) <= 70_000

@pytest.mark.parametrize('field, here', [('title', 'title'), ('version', 'version'), ('abstract', 'description'), ('repository-code', 'git_url')])
def test_citation_agrees_with_settings(field, here):
    assert str(yaml.safe_load((ROOT/'CITATION.cff').read_text(encoding='utf-8'))[field]) == SETTINGS[here]

def test_citation():
    cite = yaml.safe_load((ROOT/'CITATION.cff').read_text(encoding='utf-8'))
    assert cite['cff-version'] == '1.2.0' and cite['authors'] == [{'name': SETTINGS['author']}] and cite['license'] == 'Apache-2.0'
    assert cite['url'] == SETTINGS['doc_host'] + SETTINGS['doc_baseurl']
