"""The book in numbers: words, visible cells and what they end in, a chapter a line.

    python tools/book.py             all chapters
    python tools/book.py 32 40       those whose names begin so

Words are prose: no code, formulas, tables or solutions. A visible cell that neither defines nor imports should end in something to
see; a cell that only asserts belongs to the tests. `make check` enforces the limits: 2,600 words and 40 visible cells a chapter, 50,000
words in all, no cell that only asserts, 95 % of the cells that should show something.
"""
import ast
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_PROSE = r'^(```|~~~).*?^\1', r'\$\$.*?\$\$', r'\$[^$\n]+\$', r'^\|[^\n]*$', r'^:::[^\n]*$', r'<[^>\n]+>', r'\]\([^)\s]*\)', r'^!\[[^\n]*$', r'\{[#.][^}\n]*\}'
DEFINES = ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom

MAX_WORDS, MAX_CELLS, MAX_ALL_WORDS, MIN_SHOWN = 2600, 40, 50_000, .95

def chapters(begins=(), root=ROOT):
    "Notebooks of the book: those whose names begin with the number of a section, but for the live page, a place of its own."
    return [p for p in sorted((root / 'nbs').glob('[0-9]*.ipynb')) if p.stem != '81_live' and (not begins or p.name.startswith(tuple(begins)))]

def source(cell): return ''.join(cell['source'])

def prose(markdown):
    "The words of a text cell."
    for pattern in NOT_PROSE: markdown = re.sub(pattern, ' ', markdown, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"[^\W_][\w'’.,–-]*", markdown)

def is_visible(cell): return cell['cell_type'] == 'code' and not re.search(r'^#\| *(hide$|export\b|include: *false|default_exp)', source(cell), re.MULTILINE)

def statements(cell):
    "The statements of a code cell; none of a cell of a shell or of magics."
    try: return ast.parse(source(cell)).body
    except SyntaxError: return []

def only_asserts(cell): return bool(body := statements(cell)) and not cell['outputs'] and isinstance(body[-1], ast.Assert | ast.Expr)

def is_shown(cell): return bool(cell['outputs']) or bool(re.search(r'^#\| *(slow|gpu|eval: *false)', source(cell), re.MULTILINE))

def report(path):
    "Of a chapter: words, visible cells, cells that should show something, those that do, those that only assert."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    visible = [c for c in cells if is_visible(c)]
    should = [c for c in visible if not any(isinstance(s, DEFINES) for s in statements(c))]
    return dict(words=sum(len(prose(source(c))) for c in cells if c['cell_type'] == 'markdown'), cells=len(visible), should=len(should),
                shown=sum(map(is_shown, should)), asserts=[c['id'] for c in visible if only_asserts(c)], silent=[c['id'] for c in should if not is_shown(c)])

def totals(reports): return {key: sum(r[key] for r in reports) for key in ('words', 'cells', 'should', 'shown')}

def over_limits(root=ROOT):
    "What does not keep the limits, a line each."
    rows = {p.name: report(p) for p in chapters(root=root)}
    for name, r in rows.items():
        if r['words'] > MAX_WORDS: yield f"{name}: {r['words']:,} words, at most {MAX_WORDS:,}"
        if r['cells'] > MAX_CELLS: yield f"{name}: {r['cells']} visible cells, at most {MAX_CELLS}"
        for cell in r['asserts']: yield f'{name}, cell {cell}: only asserts; end it in something to see, or move it to the tests'
    total = totals(rows.values())
    if total['words'] > MAX_ALL_WORDS: yield f"the book: {total['words']:,} words, at most {MAX_ALL_WORDS:,}"
    if total['shown'] < MIN_SHOWN * total['should']: yield f"the book: {total['shown']} of {total['should']} cells show something, at least {MIN_SHOWN:.0%} should"

def main(*begins):
    rows = {p.stem: report(p) for p in chapters(begins)}
    print(f'{"chapter":26} words  cells  show something  only assert')
    for name, r in rows.items():
        print(f'{name:26} {r["words"]:5,}  {r["cells"]:5}  {r["shown"]:4} of {r["should"]:3}     {" ".join(r["asserts"])}')
    total = totals(rows.values())
    print(f'{len(rows)} chapters: {total["words"]:,} words, {total["cells"]} visible cells; of {total["should"]} that should show something '
          f'{total["shown"]} do ({total["shown"] / max(1, total["should"]):.1%}); {sum(len(r["asserts"]) for r in rows.values())} only assert')

if __name__ == '__main__': main(*sys.argv[1:])
