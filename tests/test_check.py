"tools/check.py must find the faults that are planted here in a small project."
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from check import CHECKS
from pages import ROOT, in_fresh_process, run_notebook, outputs_match

LAYERS = """[importlinter]
root_package = annotated_transformer

[importlinter:contract:layers]
name = Imports point down
type = layers
layers =
    annotated_transformer.attention
    annotated_transformer.core
"""

def sh(*cmd, cwd=None): return subprocess.run(list(map(str, cmd)), cwd=cwd, capture_output=True, text=True)

def export(root): assert not sh(Path(sys.executable).parent/'nbdev_export', cwd=root).returncode

def save(path, *sources, ids=()):
    "Write a clean notebook of code cells; those that begin with `# ` are markdown."
    cells = []
    for i, source in enumerate(sources):
        cell = dict(cell_type='markdown' if source.startswith('# ') else 'code', id=dict(enumerate(ids)).get(i, f'step-{i}'), metadata={},
                    source=source.splitlines(keepends=True))
        if cell['cell_type'] == 'code': cell |= dict(execution_count=None, outputs=[])
        cells.append(cell)
    write(path, dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5))

def write(path, nb): path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + '\n', encoding='utf-8')

def edit(path, cell, **changes):
    "Change one cell of a notebook."
    nb = json.loads(path.read_text(encoding='utf-8'))
    nb['cells'][cell] |= changes
    write(path, nb)

def image(n_bytes): return [dict(output_type='display_data', metadata={}, data={'image/png': 'A' * (n_bytes * 4 // 3)})]

CORE = '# Core\n\n> Twice.', '#| default_exp core', '#| exports\ndef double(x:int) -> int: return 2 * x', '#| hide\nassert double(2) == 4', '# More'
ATTENTION = ('# Attention\n\n> Four times.', '#| default_exp attention', '#| export\nfrom annotated_transformer.core import *',
             '#| exports\ndef four(x:int) -> int: return double(double(x))', '#| hide\nassert four(1) == 4')
INDEX = '# A small project\n\n> Small.', '#| hide\nfrom annotated_transformer.core import *', 'x = 1 + 1', '# More\n\nSee [attention](32_attention.ipynb).'
SIDEBAR = 'website:\n  sidebar:\n    contents:\n' + ''.join(f'      - {n}.ipynb\n' for n in ('index', '00_core', '32_attention'))

@pytest.fixture(scope='module')
def healthy(tmp_path_factory):
    root = tmp_path_factory.mktemp('healthy')
    for name in '.codespellrc', 'ruff.toml': shutil.copy(ROOT/name, root)
    (root/'settings.ini').write_text(''.join(line for line in (ROOT/'settings.ini').open() if not line.startswith('procs')))   # has no such module
    (root/'.importlinter').write_text(LAYERS)
    (root/'nbs').mkdir()
    (root/'_quarto.yml').write_text(SIDEBAR)
    (root/'nbs'/'_quarto.yml').symlink_to('../_quarto.yml')
    save(root/'nbs'/'00_core.ipynb', *CORE)
    save(root/'nbs'/'32_attention.ipynb', *ATTENTION)
    save(root/'nbs'/'index.ipynb', *INDEX)
    export(root)
    assert not sh(sys.executable, ROOT/'tools'/'readme.py', '--root', root).returncode
    sh('git', 'init', '-q', cwd=root)
    return root

@pytest.fixture
def project(healthy, tmp_path): return Path(shutil.copytree(healthy, tmp_path/'project', symlinks=True))

def test_healthy(healthy):
    "No fault, no FAIL."
    result = sh(sys.executable, ROOT/'tools'/'check.py', '--root', healthy)
    assert not result.returncode and result.stdout.splitlines()[-1] == f'{len(CHECKS)} passed, 0 failed', result.stdout + result.stderr
    for name in '00_core', '32_attention', 'index': assert page(healthy, name) == ([], [])

def page(root, name, *args): return in_fresh_process(run_notebook, root/'nbs'/f'{name}.ipynb', *args)

def unclean(root): edit(root/'nbs'/'00_core.ipynb', 3, execution_count=7)

def by_hand(root):
    with open(root/'annotated_transformer'/'attention.py', 'a') as f: f.write('x = 1\n')

def no_notebook(root): (root/'annotated_transformer'/'extra.py').write_text('x = 1\n')
def never_exported(root): (root/'annotated_transformer'/'attention.py').unlink()
def ignored(root): (root/'.gitignore').write_text('attention.py\n'); never_exported(root)
def old_index(root): (root/'annotated_transformer'/'_modidx.py').write_text('d = {}\n')
def forward(root): (root/'annotated_transformer/core.py').open('a').write('from .attention import four\n')

def mixed(root): edit(root/'nbs'/'32_attention.ipynb', 4, source=['import math\n', 'assert math.pi > 3'])
def hidden_target(root):
    edit(root/'nbs'/'32_attention.ipynb', 3, source=['#| export\n', 'def four(x): return double(double(x))'])  # not on the page
    export(root); more(root, 'As `four` says.')

def broken_module(root):
    edit(root/'nbs'/'32_attention.ipynb', 2, source=['from annotated_transformer.core import *'])  # no longer exported
    edit(root/'nbs'/'32_attention.ipynb', 3, source=['#| exports\n', 'four = double(2)'])
    export(root)

def long_module(root): (root/'annotated_transformer/long.py').write_text('# a line\n' * 251)

def assertion(root): edit(root/'nbs'/'32_attention.ipynb', 4, source=['assert four(1) == 5'])

def long_cell(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['x = 1\n'] * 41)
def long_definition(root): edit(root/'nbs'/'00_core.ipynb', 2, source=['#| exports\n', 'class A:\n', *(f'    x{i} = 1\n' for i in range(40))])   # a chapter
def hex_id(root): edit(root/'nbs'/'00_core.ipynb', 2, id='3f2a91c0')
def saved_error(root): edit(root/'nbs'/'00_core.ipynb', 3, outputs=[dict(output_type='error', ename='KeyError', evalue='', traceback=[])])
def saved_warning(root): edit(root/'nbs'/'00_core.ipynb', 3, outputs=[dict(output_type='stream', name='stderr', text=['IProgress not found'])])
def big_image(root): edit(root/'nbs'/'00_core.ipynb', 3, outputs=image(150_000))
def no_caption(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['#| label: fig-x\n', 'x = 1'])

def no_link(root):
    (root/'nbs'/'_quarto.yml').unlink()
    shutil.copy(root/'_quarto.yml', root/'nbs')

def misnumbered(root):
    (root/'_quarto.yml').write_text(SIDEBAR.replace('- 32_attention.ipynb', '- {text: 3.2c Four times, href: 32_attention.ipynb}'))
    edit(root/'nbs'/'32_attention.ipynb', 0, source=['# 3.2 Attention\n', '\n', '> Four times.'])

def unlisted(root): save(root/'nbs'/'33_feed_forward.ipynb', '# Feed-forward')
def gone(root): (root/'nbs'/'32_attention.ipynb').unlink()
def old_readme(root): edit(root/'nbs'/'index.ipynb', 0, source=['# Another title\n', '\n', '> Small.'])
def misspelt(root): edit(root/'nbs'/'00_core.ipynb', 0, source=['# Core rec' 'ieves\n', '\n', '> Twice.'])        # in two: this file is checked as well

def more(root, text): edit(root/'nbs'/'00_core.ipynb', 4, source=['# More\n', '\n', text])
def dead_link(root): more(root, 'See [there](33_gone.ipynb).')
def dead_anchor(root): more(root, 'See [there](32_attention.ipynb#nowhere).')
def dead_place(root): more(root, 'See [there](32_attention.ipynb#at-step-2).')     # a cell that the page leaves out
def dead_figure(root): more(root, 'See @fig-gone.')
def dead_citation(root): more(root, 'As in [@nobody2020nothing].')
def unknown_claim(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['#| claim: C9.9z\n', 'assert double(2) == 4'])
def text_after_title(root): edit(root/'nbs'/'00_core.ipynb', 0, source=['# Core\n', '\n', '> Twice.\n', '\n', 'More.'])
def tagged(root): more(root, '$$x = y \\tag{1}$$')
def big_bracket(root): more(root, '$$\\Bigl\\{x\\Bigr\\}$$')
def nested_link(root): more(root, '[`four`](32_attention.ipynb)')
def vanishing(root): more(root, 'The end, <eos>, and `<bos>`.')
def tight_list(root): more(root, 'Three things:\n- one\n- two')
def number_begins(root): more(root, '- It brings\n  21. Nothing more.')
def lost_backslash(root): more(root, 'Three times $\alpha$.')
def shown_solution(root):
    edit(root/'nbs'/'00_core.ipynb', 4, source=['# More\n', '\n', '## Exercises'])
    nb = json.loads((root/'nbs'/'00_core.ipynb').read_text(encoding='utf-8'))
    nb['cells'].append(dict(cell_type='code', id='solution', metadata={}, execution_count=None, source=['#| code-fold: true\n', 'print(double(2))'],
                            outputs=[dict(output_type='stream', name='stdout', text=['4\n'])]))
    write(root/'nbs'/'00_core.ipynb', nb)
def web(root, script='const f = x => x\nf(1)\n', style='a { color: red }\n', form='<p>a</p>\n'):
    folder = root/'annotated_transformer'/'web'
    folder.mkdir()
    shutil.copy(ROOT/'.oxlintrc.json', root)
    for name, text in ('page.js', script), ('style.css', style), ('form.html', form): (folder/name).write_text(text)
def undefined(root): web(root, script='const f = x => y\nf(1)\n')
def bad_style(root): web(root, style='a { color: red }\n) b {}\n')
def bad_declaration(root): web(root, style='@media print {\n  a { color red }\n}\n')
def bad_form(root): web(root, form='<p><b>a</p>\n')
def bad_elsewhere(root):
    web(root)
    (root/'annotated_transformer'/'view').mkdir()
    (root/'annotated_transformer'/'view'/'view.js').write_text('g()\n')
def wide(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['assert double(2) == 4' + ' + 0' * 20])
def unused(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['import math'])
def trap(root): edit(root/'nbs'/'00_core.ipynb', 3, source=['def collect(x, into=[]): into.append(x)'])
def untyped(root): (root/'annotated_transformer'/'core.py').open('a').write('def half(x): return x / 2\n')
def wrong_type(root): (root/'annotated_transformer'/'core.py').open('a').write('def half(x:int) -> str: return x / 2\n')
def untyped_method(root):
    (root/'annotated_transformer'/'core.py').open('a').write('from fastcore.basics import patch\nclass A:\n    pass\n@patch\ndef f(self:A) -> int: return 1\nx:str = A().f()\n')
PATCHED = 'from fastcore.basics import patch\nclass A:\n    pass\n@patch\ndef f(self:A) -> int: return 1\n'
def no_stub(root): (root/'annotated_transformer'/'core.py').open('a').write(PATCHED)
def old_stub(root):
    no_stub(root)
    assert not sh(sys.executable, ROOT/'tools'/'check_types.py', '--write', '--root', root).returncode and not CHECKS['types'](root)
    (root/'annotated_transformer'/'core.py').open('a').write('@patch\ndef g(self:A) -> str: return str(self.f())\n')
def stub_of_nothing(root): (root/'annotated_transformer'/'gone.pyi').write_text('')
def own_name(root): (root/'annotated_transformer'/'core.py').open('a').write('what_said = 1\n')
def own_words(root): (root/'annotated_transformer'/'core.py').open('a').write('message = "the file says nothing"\n')
def long_chapter(root): edit(root/'nbs'/'32_attention.ipynb', 0, cell_type='markdown', source=['word ' * 2601])
def only_asserts(root): edit(root/'nbs'/'32_attention.ipynb', 4, source=['assert 1'], outputs=[])
def own_prose(root): edit(root/'nbs'/'00_core.ipynb', 4, cell_type='markdown', source=['Nobody looks.'])
def silent(root): edit(root/'nbs'/'32_attention.ipynb', 4, source=['four(1);'], outputs=[dict(output_type='stream', name='stdout', text=['5\n'])])
def stale(root): edit(root/'nbs'/'32_attention.ipynb', 4, source=['print(four(1))'], outputs=[dict(output_type='stream', name='stdout', text=['5\n'])])

@pytest.mark.parametrize('plant, name, said', [
    (unclean, 'clean', 'nbs/00_core.ipynb is not clean'),
    (by_hand, 'sync', 'annotated_transformer/attention.py is not what the notebooks say'),
    (no_notebook, 'sync', 'annotated_transformer/extra.py is not'),
    (never_exported, 'sync', 'annotated_transformer/attention.py is not'),
    (ignored, 'sync', 'annotated_transformer/attention.py is not'),
    (old_index, 'sync', 'annotated_transformer/_modidx.py is not'),
    (forward, 'imports', 'annotated_transformer.core -> annotated_transformer.attention'),
    (mixed, 'imports', '32_attention.ipynb, cell step-4: imports and other code'),
    (hidden_target, 'pages', '00_core.ipynb links to attention.html#four: no heading, label, cell or exported definition'),
    (dead_place, 'pages', '00_core.ipynb links to attention.html#at-step-2: no'),
    (broken_module, 'modules', '`import annotated_transformer.attention` fails'),
    (long_module, 'modules', 'annotated_transformer/long.py: 251 lines, 250 at most'),
    (long_cell, 'cells', '00_core.ipynb, cell step-3: 41 lines'),
    (long_definition, 'cells', '00_core.ipynb, cell step-2: 41 lines of code: split it, 40 is the limit'),
    (hex_id, 'cells', '00_core.ipynb, cell 3f2a91c0: an exported cell needs a readable id'),
    (saved_error, 'cells', '00_core.ipynb, cell step-3: saved with an error, KeyError'),
    (saved_warning, 'cells', '00_core.ipynb, cell step-3: saved with a warning'),
    (big_image, 'cells', '00_core.ipynb, cell step-3: an image of 150,000 bytes'),
    (no_caption, 'cells', '00_core.ipynb, cell step-3: a figure needs `#| label'),
    (no_link, 'site', 'nbs/_quarto.yml is no link'),
    (misnumbered, 'site', "the sidebar calls 32_attention.ipynb '3.2c Four times', its title is '3.2 Attention'"),
    (unlisted, 'site', '33_feed_forward.ipynb is missing from the sidebar'),
    (gone, 'site', 'the sidebar lists 32_attention.ipynb, which is not in nbs/'),
    (old_readme, 'readme', 'out of date: README.md'),
    (misspelt, 'spelling', 'recieves'),
    (dead_link, 'links', '00_core.ipynb, cell step-4: links to 33_gone.ipynb, which is not there'),
    (dead_anchor, 'links', '32_attention.ipynb has no heading or label nowhere'),
    (dead_figure, 'links', '@fig-gone is no label of this chapter'),
    (dead_citation, 'links', '@nobody2020nothing is not in nbs/references.bib'),
    (unknown_claim, 'links', 'C9.9z is no claim of nbs/claims.csv'),
    (text_after_title, 'links', '00_core.ipynb, cell step-0: nbdev shows of the first text cell only'),
    (nested_link, 'links', 'nbdev links names in code by itself'),
    (tagged, 'links', 'which knows no \\tag'),
    (big_bracket, 'links', 'which knows no \\Bigl'),
    (lost_backslash, 'lists', "00_core.ipynb, cell step-4: the character '\\x07' before 'lpha$.'"),
    (number_begins, 'lists', "00_core.ipynb, cell step-4: '21. Nothing more.' begins a list"),
    (vanishing, 'lists', '00_core.ipynb, cell step-4: <eos> is an HTML tag in the page'),
    (tight_list, 'lists', "00_core.ipynb, cell step-4: '- one' begins a list"),
    (undefined, 'scripts', "'y' is not defined"),
    (bad_style, 'scripts', 'style.css, line 2'),
    (bad_declaration, 'scripts', 'style.css, line 2'),
    (bad_elsewhere, 'scripts', "view: "),
    (bad_form, 'scripts', 'form.html: an element is not closed'),
    (shown_solution, 'pages', '00_core.ipynb, cell solution: a folded solution shows its output'),
    (wide, 'lint', 'E501 Line too long'),
    (unused, 'lint', 'F401'),
    (trap, 'lint', 'B006'),
    (untyped, 'types', 'Function is missing a type annotation'),
    (wrong_type, 'types', 'Incompatible return value type'),
    (untyped_method, 'types', 'expression has type "int", variable has type "str"'),
    (no_stub, 'types', 'out of date: annotated_transformer/core.pyi; run `python tools/check_types.py --write`'),
    (old_stub, 'types', 'out of date: annotated_transformer/core.pyi;'),
    (stub_of_nothing, 'types', 'out of date: annotated_transformer/gone.pyi;'),
    (own_name, 'words', "core.py, line "),
    (own_words, 'words', "has 'the file says'; the field: contains"),
    (long_chapter, 'book', '32_attention.ipynb: 2,6'),
    (only_asserts, 'book', 'only asserts'),
    (own_prose, 'words', "00_core.ipynb, cell step-4: 'Nobody looks.' has 'Nobody'"),
])
def test_fault(project, plant, name, said):
    plant(project)
    faults = CHECKS[name](project)
    assert faults and any(said in fault for fault in faults), faults

def test_a_reference_part_behind_the_exercises_may_show_outputs(project):
    "Only solutions give themselves away."
    shown_solution(project)
    edit(project/'nbs'/'00_core.ipynb', 4, source=['# More\n', '\n', '## Exercises\n', '\n', '## Reference'])
    assert not any('a folded solution' in fault for fault in CHECKS['pages'](project))

def test_a_reference_part_before_the_exercises_ends_nothing(project):
    "A solution behind both still gives itself away."
    shown_solution(project)
    nb = json.loads((project/'nbs'/'00_core.ipynb').read_text(encoding='utf-8'))
    nb['cells'].insert(1, dict(cell_type='markdown', id='early', metadata={}, source=['## Reference']))
    write(project/'nbs'/'00_core.ipynb', nb)
    assert any('a folded solution' in fault for fault in CHECKS['pages'](project))

@pytest.mark.parametrize('plant, said', [(assertion, 'AssertionError'), (stale, "cell step-4 was saved with '5' and now gives '4'"), (silent, "was saved with '5' and now gives ''")])
def test_a_page_that_fails(project, plant, said):
    plant(project)
    faults, _ = page(project, '32_attention')
    assert faults and any(said in fault for fault in faults), faults

@pytest.mark.parametrize('slower', (2, 10_000))
def test_slow_cell(project, slower):
    "A cell without a flag that takes too long is a fault, here after a twentieth of a second; one that another machine may manage is noted."
    edit(project/'nbs'/'32_attention.ipynb', 4, source=['#| varies: true\n', 'sum(range(20_000_000))'])
    said = page(project, '32_attention', .05, slower)[slower == 10_000]
    assert len(said) == 1 and 'cell step-4 takes ' in said[0], said
    edit(project/'nbs'/'32_attention.ipynb', 4, source=['#| slow\n', 'sum(range(20_000_000))'])
    assert page(project, '32_attention', .05, slower) == ([], [])

def test_readme(project):
    "Hidden cells go, a page is linked on the site with its notebook beside it, images become files with their captions below."
    edit(project/'nbs'/'index.ipynb', 2, source=['#| label: fig-a\n', '#| fig-cap: What it shows.\n', '#| fig-alt: What is drawn.\n', '#| echo: false\n', 'draw()'], outputs=image(30))
    readme = sh(sys.executable, ROOT/'tools'/'readme.py', '--root', project)
    assert not readme.returncode, readme.stderr
    text = (project/'README.md').read_text()
    assert '/attention.html) <sup>[nb](nbs/32_attention.ipynb)</sup>' in text and 'import' not in text and 'draw()' not in text and '#|' not in text
    path, below = text.split('![What is drawn.](')[1].split(')', 1)
    assert below.startswith('\n\n*What it shows.*')
    assert (project/path).read_bytes() == bytes(30)

@pytest.mark.parametrize('a, b, agree', [('loss 0.71', 'loss 0.72', True), ('loss 0.71', 'loss 0.74', False), ('12,000 words', '12,100 words', True), ('1e-9', '9e-9', False), ('1e-15', '9e-15', True),
                                         ('yes', 'no', False), ('a  b', 'a b', True), ('3 of 4', '2 of 4', False), ('', '1', False)])
def test_same(a, b, agree):
    "Words must agree, numbers to one per cent or to one unit of a decimal."
    assert outputs_match(a, b) == agree

def test_a_process_that_dies_is_said():
    with pytest.raises(RuntimeError, match='exit status 3'): in_fresh_process(os._exit, 3)
    with pytest.raises(RuntimeError, match='ZeroDivisionError'): in_fresh_process(divmod, 1, 0)

def test_a_healthy_page_program(project):
    web(project)
    assert CHECKS['scripts'](project) == []
