"What nbdev adds to the site's pages (`procs` in settings.ini): places for links to go to, and a link to Colab."
import ast, re
from pathlib import Path
from nbdev.config import get_config
from nbdev.process import Processor
from execnb.nbio import mk_cell

OURS = re.compile(r'^#\| *(?:claim|varies):.*\n', re.MULTILINE)                # directives that are not Quarto's

def names(tree):
    "What an exported cell defines, as nbdev's links to it end: `attention`, `translator`, `translator.search`."
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    for node in tree:
        if isinstance(node, ast.ClassDef): yield from [node.name, *(f'{node.name}.{f.name}' for f in node.body if isinstance(f, functions))]
        if isinstance(node, functions):
            patched = any('patch' in ast.unparse(d) for d in node.decorator_list)
            yield f'{node.args.args[0].annotation.id}.{node.name}' if patched else node.name

class Anchors(Processor):
    "An anchor before each exported definition and each cell that checks a claim, without the directives that only our checks read."
    def begin(self):
        cells = self.nb.cells
        for i, cell in reversed([*enumerate(cells)]):
            source, flags = cell.get('source', ''), getattr(cell, 'directives_', {}) or {}
            ids = [x.lower() for x in names(cell.parsed_() or [])] if 'exports' in flags else []
            if re.search(r'^#\| *claim:', source, re.MULTILINE): ids.append(f'at-{cell.id}')
            if source: cell.source = OURS.sub('', source)
            if ids: cells.insert(i, mk_cell(''.join(f'[]{{#{id}}}' for id in ids), 'markdown'))

class Colab(Processor):
    "A link after the title: run this chapter in Colab."
    def begin(self):
        name, c = Path(self.nb.path_).name, get_config()
        if not re.match(r'\d', name): return
        url = f'https://colab.research.google.com/github/{c.user}/{c.repo}/blob/{c.branch}/nbs/{name}'
        self.nb.cells.insert(2, mk_cell(f'[Open in Colab]({url}){{.colab}}', 'markdown'))
