"""Check that notebooks, package and pages are in order, without running them; ends with one line `N passed, N failed`.

    python tools/check.py               every check
    python tools/check.py clean links   only the checks named
"""
import argparse, ast, base64, csv, gzip, json, os, posixpath, re, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from readme import site_url
from book import over_limits
from words import find_words

ROOT, PACKAGE, BIN = Path(__file__).resolve().parents[1], 'annotated_transformer', Path(sys.executable).parent
MAX_LINES, MAX_EXPORTED, MAX_IMAGE = 40, 60, 120_000

def subprocess_env():
    "As a user has them (nbdev does nothing at all where IN_TEST is set), one thread per process."
    return {k: v for k, v in os.environ.items() if k != 'IN_TEST'} | {'OMP_NUM_THREADS': '1'}

def run(*cmd, cwd):
    "What `cmd` gives."
    return subprocess.run(list(map(str, cmd)), cwd=cwd, env=subprocess_env(), capture_output=True, text=True, errors='replace')

def tail(result, n=12): return '\n'.join((result.stdout + result.stderr).strip().splitlines()[-n:])

def notebooks(root): return sorted(p for p in (root/'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)

def page(path):
    "The path of a notebook below nbs/."
    return path.as_posix().rpartition('/nbs/')[2]

def cells(path, kind='code'):
    "(id, source, outputs) of the cells of one kind."
    for i, c in enumerate(json.loads(path.read_text(encoding='utf-8'))['cells']):
        if c['cell_type'] == kind: yield c.get('id', f'number {i}'), ''.join(c['source']), c.get('outputs', [])

def exported_module(path):
    "The module that a notebook exports to, or None."
    found = [m[1] for _, source, _ in cells(path) if (m := re.search(r'^#\| *default_exp +(\S+)', source, re.MULTILINE))]
    return found[0] if found else None

def error_reporter(path, key, faults):
    "A function that adds to `faults` one of this cell."
    return lambda text: faults.append(f'{page(path)}, cell {key}: {text}')

@contextmanager
def clean_checkout(root):
    "A copy of all files that git holds or would add. Links stay links."
    files = run('git', 'ls-files', '-coz', '--exclude-standard', cwd=root)
    assert files.returncode == 0, f'{root} is not a git repository: {files.stderr}'
    with tempfile.TemporaryDirectory() as tmp:
        for f in filter(None, files.stdout.split('\0')):
            if not os.path.lexists(root/f): continue
            (Path(tmp)/f).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root/f, Path(tmp)/f, follow_symlinks=False)
        yield Path(tmp)

def changed_files(root, folder, pattern):
    "Files below `root` and its copy that match `pattern` and differ."
    names = {p.relative_to(r) for r in (root, folder) for p in r.glob(pattern)}
    return sorted(str(f) for f in names if not all((r/f).exists() for r in (root, folder))
                  or (root/f).read_bytes() != (folder/f).read_bytes())

# Each check takes the project's folder and returns its faults: what, where, what to do.

def clean(root):
    "`nbdev_clean` has nothing to do."
    with clean_checkout(root) as copy:
        result = run(BIN/'nbdev_clean', cwd=copy)
        if result.returncode: return [tail(result)]
        return [f'{f} is not clean: run `nbdev_clean`' for f in changed_files(root, copy, 'nbs/**/*.ipynb')]

def sync(root):
    "`nbdev_export` has nothing to do, and every module has its notebook."
    with clean_checkout(root) as copy:
        for p in (copy/PACKAGE).rglob('*.py'):
            if p.name != '__init__.py': p.unlink()
        result = run(BIN/'nbdev_export', cwd=copy)
        if result.returncode: return [tail(result)]
        return [f'{f} is not what the notebooks say: edit the notebook, run `nbdev_export`, add the file to git'
                for p in (f'{PACKAGE}/**/*.py', 'pyproject.toml') for f in changed_files(root, copy, p)]

def imports(root):
    "The layers of the package import downwards only (import-linter); cells import nothing beside other code."
    result = run(BIN/'lint-imports', '--no-cache', cwd=root)
    faults = [tail(result, 40)] if result.returncode else []
    for path in notebooks(root):
        for key, source, _ in cells(path):
            if source.lstrip().startswith('%%'): continue
            fault = error_reporter(path, key, faults)
            try: tree = ast.parse(re.sub(r'^(\s*)[%!].*', r'\1pass', source, flags=re.MULTILINE))
            except SyntaxError as e: fault(f'does not parse: {e}'); continue
            found = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
            runs = 'nbdev_export()' not in source and not re.search(r'^#\| *(export|eval: *false)', source, re.MULTILINE)
            if found and runs and not all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in tree.body):
                fault('imports and other code: nbdev runs such a cell for the site; move the imports to a cell of their own')
    return faults

# Slow to load, so loaded once for all modules, if the package names them: by an import of theirs they are in `sys.modules`, not in a module of the package.
SLOW_LIBRARIES = ('accelerate', 'datasets', 'fastcore.script', 'matplotlib.pyplot', 'num2words', 'pydantic', 'sacrebleu', 'sacremoses', 'seaborn', 'sentencepiece', 'torch',
                  'torch.distributed.checkpoint.state_dict')
IMPORT_ALL = """import gc, importlib, os, sys
libraries, names = (arg.split() for arg in sys.argv[1:])
for name in libraries: importlib.import_module(name)
gc.disable(); gc.freeze()           # a child copies no page only to count references
for name in names:
    if not os.fork():
        try: importlib.import_module(name)
        except BaseException as e: print(name, 'IMPORT', repr(e), flush=True)
        os._exit(0)
    os.wait()"""

def modules(root):
    "Every module imports alone, in a process that knows no other module of the package, and has at most 250 lines."
    names = ['.'.join(p.relative_to(root).with_suffix('').parts).removesuffix('.__init__')
             for p in sorted((root/PACKAGE).rglob('*.py')) if p.name != '_modidx.py']
    source = '\n'.join(p.read_text(encoding='utf-8') for p in (root/PACKAGE).rglob('*.py'))
    slow = [name for name in SLOW_LIBRARIES if name in source]
    result = run(sys.executable, '-c', IMPORT_ALL, ' '.join(slow), ' '.join(names), cwd=root)
    failed = re.findall(r'^(\S+) IMPORT (.*)$', result.stdout, re.MULTILINE)
    if result.returncode: return [tail(result)]
    long = [f'{p.relative_to(root)}: {n} lines, 250 at most: a module has one idea' for p in (root/PACKAGE).rglob('*.py')
            if p.name != '_modidx.py' and (n := len(p.read_text(encoding='utf-8').splitlines())) > 250]
    return long + [f'`import {name}` fails: does an exported cell use a name from a cell that is not exported?\n{why}' for name, why in failed]

def cells_in_order(root):
    "Cells are short, ran without errors, have readable ids where exported, and small images with captions."
    faults = []
    for path in notebooks(root):
        for key, source, outputs in cells(path):
            fault = error_reporter(path, key, faults)
            lines = sum(bool(line.strip()) and not line.startswith('#|') for line in source.splitlines())
            flags = set(re.findall(r'^#\| *([\w-]+)', source, re.MULTILINE))
            exported = flags & {'export', 'exports', 'exporti'}
            reference = exported and '/' in page(path)              # not a chapter
            limit = MAX_EXPORTED if reference else MAX_LINES
            if reference:                                           # a class stands in one cell, however long
                lines -= sum(node.end_lineno - node.lineno for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
            if lines > limit: fault(f'{lines} lines of code: split it, {limit} is the limit')
            if exported and re.fullmatch(r'[0-9a-f]{8}(-.*)?|cell-\d+|number \d+', key):
                fault('an exported cell needs a readable id, such as `multi-head`')
            if len(flags & {'label', 'fig-cap', 'fig-alt'}) not in (0, 3): fault('a figure needs `#| label: fig-…`, `#| fig-cap: …` and `#| fig-alt: …`')
            for o in outputs:
                if o.get('name') == 'stderr': fault(f'saved with a warning, {"".join(o["text"])[:80]!r}: take it out')
                if o['output_type'] == 'error': fault(f'saved with an error, {o["ename"]}: mend it and run the notebook again')
                for kind, data in o.get('data', {}).items():
                    if not kind.startswith('image/'): continue
                    data = ''.join(data)
                    size = len(gzip.compress(data.encode()) if 'svg' in kind else base64.b64decode(data))   # as the site sends it
                    if size > MAX_IMAGE: fault(f'an image of {size:,} bytes: draw it smaller, {MAX_IMAGE:,} is the limit')
    return faults

def lists(root):
    "A list has an empty line before it; without one it is shown as part of the paragraph. No backslash became a control character, no token a tag."
    texts = [(path.name, path.read_text(encoding='utf-8')) for path in root.glob('*.md')]
    for path in notebooks(root):
        texts += [(f'{page(path)}, cell {key}', source) for key, source, _ in cells(path, 'markdown')]
        texts += [(f'{page(path)}, what cell {key} shows', ''.join(o['data']['text/markdown'])) for key, _, outputs in cells(path)
                  for o in outputs if 'text/markdown' in o.get('data', {})]
        texts += [(f'{page(path)}, caption of cell {key}', line) for key, source, _ in cells(path)
                  for line in re.findall(r'^#\| (?:fig-cap|code-summary): (.*)', source, re.MULTILINE)]
    faults, item = [], re.compile(r' *([-*+]|\d+[.)]) +\S')
    for where, text in texts:
        faults += [f'{where}: the character {odd!r} before {text[text.index(odd) + 1:][:20]!r} is not to be seen: was it a backslash and a letter?'
                   for odd in sorted({*re.findall(r'[\x00-\x08\x0b-\x1f]', text)})]
        prose = re.sub(r'^ *```.*?^ *```', '', text, flags=re.MULTILINE | re.DOTALL)
        faults += [f'{where}: {tag} is an HTML tag in the page, and not to be seen: write `{tag}`'
                   for tag in re.findall(r'(?<!\\)</?(?:s|bos|eos|pad|unk)>', re.sub(r'(?s)`[^`\n]*`|\$\$.*?\$\$|\$[^$]*\$', '', prose))]
        lines = prose.splitlines()
        faults += [f'{where}: {line.strip()[:50]!r} begins a list: put an empty line before it' for before, line in zip(lines, lines[1:])
                   if item.match(line) and before.strip() and not item.match(before) and not re.match(r'[ #>|:]', before)
                   or re.match(r' *\d\d+[.)] ', line) and before.strip() and not re.match(r' *\d+[.)] ', before)]      # a number that ends a sentence
    return faults

def lint(root):
    "ruff finds nothing: 88 columns in notebooks, no unused, undefined or shadowed names, no traps."
    result = run(BIN/'ruff', 'check', '--quiet', '--no-cache', '--output-format', 'concise', cwd=root)
    return [line.replace(f'{root}/', '') for line in (result.stdout + result.stderr).splitlines() if line.strip()] if result.returncode else []

def scripts(root):
    "oxlint finds nothing in the JavaScript of a folder, taken as the one program that it becomes; style sheets and forms are whole."
    import tinycss2
    package, faults = root/PACKAGE, []
    for folder in sorted({p.parent for p in package.rglob('*.js')}):
        with tempfile.TemporaryDirectory() as tmp:
            program = Path(tmp)/'program.js'
            program.write_text('\n'.join(p.read_text(encoding='utf-8') for p in sorted(folder.glob('*.js'))), encoding='utf-8')
            result = run(BIN/'oxlint', '-c', root/'.oxlintrc.json', '--deny-warnings', program, cwd=tmp)
            if result.returncode: faults.append(f'{folder.name}: {tail(result, 40)}')
    def errors(name, nodes):
        for node in nodes:
            if node.type == 'error': yield f'{name}, line {node.source_line}: {node.message}'
            for part in 'prelude', 'value', 'arguments':
                if isinstance(inner := getattr(node, part, None), list): yield from errors(name, inner)
            if 'rule' in node.type and node.content: yield from errors(name, tinycss2.parse_blocks_contents(node.content))
    for path in sorted(package.rglob('*.css')): faults += errors(path.name, tinycss2.parse_stylesheet(path.read_text(encoding='utf-8')))
    for path in sorted(package.rglob('*.html')):
        tags = re.findall(r'<(/?)(\w+)', path.read_text(encoding='utf-8'))
        opened = [name for close, name in tags if not close and name not in ('input', 'br', 'img', 'hr')]
        if sorted(opened) != sorted(name for close, name in tags if close): faults.append(f'{path.name}: an element is not closed, or closed twice')
    return faults

def site(root):
    "nbs/_quarto.yml is a link to ../_quarto.yml, whose sidebar lists every notebook once, under the number of its title."
    link, titles = root/'nbs'/'_quarto.yml', {page(p): next(cells(p, 'markdown'))[1].removeprefix('# ') for p in notebooks(root)}
    rows = re.findall(r'^ *- *(?:{text: *"?(.*?)"?, *href: *)?([\w./-]+\.ipynb)}? *$', (root/'_quarto.yml').read_text(encoding='utf-8').partition('  sidebar:')[2], re.MULTILINE)
    sidebar, names = [name for _, name in rows], [*titles]
    faults = [] if link.is_symlink() and os.readlink(link) == '../_quarto.yml' else ['nbs/_quarto.yml is no link: run `ln -sf ../_quarto.yml nbs/`']
    faults += [f'{n} is missing from the sidebar: add it to _quarto.yml' for n in names if n not in sidebar]
    faults += [f'the sidebar lists {n}, which is not in nbs/: take it out of _quarto.yml' for n in sidebar if n not in names]
    def number(text): return re.match(r'\d[\d.]*[a-z]?(?= )|', text)[0]
    faults += [f'the sidebar calls {n} {text!r}, its title is {title!r}: give both the same number, or none' for text, n in rows
               if text and number(text) != number(title := titles.get(n, text).splitlines()[0])]
    return faults + [f'the sidebar lists {n} twice' for n in {n for n in sidebar if sidebar.count(n) > 1}]

def slug(heading):
    "The anchor that Quarto gives a heading."
    text = re.sub(r'\[([^]]*)\]\([^)]*\)|[`*$]', r'\1', heading)
    return re.sub(r'^[^a-z]+', '', re.sub(r'\s+', '-', re.sub(r'[^\w\s.-]', '', text.lower()).strip()))

def links(root):
    "Every link within the site, figure, citation and claim that a text names exists; a first cell is a title and one line."
    from annotated_transformer.analysis.docs import _list_definitions
    anchors, faults = {}, []
    for path in notebooks(root):
        code, text = list(cells(path)), list(cells(path, 'markdown'))
        found = anchors[page(path)] = {slug(h) for _, s, _ in text for h in re.findall(r'^#+ +(.+?) *$', s, re.MULTILINE)}
        found |= {f'at-{key}' for key, _, _ in code} | {name.lower() for _, s, _ in code if s.startswith('#| exports') for name in _list_definitions(ast.parse(s).body)} | set(re.findall(r'\{#([\w-]+)', '\n'.join(s for _, s, _ in text)))
        labels = [m for _, s, _ in code for m in re.findall(r'^#\| *label: *(\S+)', s, re.MULTILINE)]
        found |= set(labels)
        faults += [f'{page(path)}: the label {x} is there twice: rename one' for x in sorted({x for x in labels if labels.count(x) > 1})]
        if text and not re.fullmatch(r'# .+\n\n> .+', text[0][1].strip()):
            faults.append(f'{page(path)}, cell {text[0][0]}: nbdev shows of the first text cell only `# title` and `> one line`: move the rest to a cell of its own')
    bib = root/'nbs'/'references.bib'
    cited = set(re.findall(r'^@\w+\{([^,]+),', bib.read_text(encoding='utf-8'), re.MULTILINE)) if bib.exists() else set()
    claims = root/'nbs'/'claims.csv'
    ids = {row['id'] for row in csv.DictReader(claims.open(encoding='utf-8'))} if claims.exists() else set()
    for path in notebooks(root):
        shown = [(key, ''.join(o['data']['text/markdown'])) for key, _, outputs in cells(path) for o in outputs if 'text/markdown' in o.get('data', {})]
        for key, source in [(key, s) for key, s, _ in cells(path, 'markdown')] + shown:
            fault = error_reporter(path, key, faults)
            for name in sorted({*re.findall(r'\\(?:tag|Big[lr])(?![a-z])', source)}): fault(f'the pages show formulas as MathML, which knows no {name}: write \\qquad (1), \\left or \\right')
            for name in re.findall(r'\[`\w+`\]\(', source): fault(f'{name}…): nbdev links names in code by itself, and a link within a link breaks the page: write words')
            source = re.sub(r'```.*?```|`[^`\n]*`|\$\$.*?\$\$', '', source, flags=re.DOTALL)
            for target in re.findall(r'\]\((?!\w+:)([^)\s]+)', source):
                file, _, anchor = target.partition('#')
                there = posixpath.normpath(posixpath.join(posixpath.dirname(page(path)), file)) if file else page(path)
                if not (root/'nbs'/there).exists(): fault(f'links to {file}, which is not there')
                elif anchor and anchor not in anchors.get(there, {anchor}): fault(f'links to {target}: {there} has no heading or label {anchor}')
            for name in re.findall(r'(?<![\w.])@([A-Za-z][\w-]*)', source):
                if name.startswith(('fig-', 'eq-', 'tbl-', 'sec-')):
                    if name not in anchors[page(path)]: fault(f'@{name} is no label of this chapter')
                elif name not in cited: fault(f'@{name} is not in nbs/references.bib')
        for kind in 'markdown', 'code':
            for key, source, _ in cells(path, kind):
                where = source if kind == 'markdown' else ' '.join(re.findall(r'^#\| *claim:(.*)', source, re.MULTILINE))
                faults += [f'{page(path)}, cell {key}: {x} is no claim of nbs/claims.csv'
                           for x in sorted(set(re.findall(r'\bC(?:\d\.\d|4)[a-z]\b|\bCA\b', where)) - ids)]
    return faults

def first_cell(cells, heading, start=0):
    "Index of the first cell, from start on, that has such a heading; their number if none has."
    return next((i for i in range(start, len(cells)) if re.search(heading, ''.join(cells[i]['source']), re.MULTILINE)), len(cells))

def pages(root):
    "nbdev can make the pages of the site (Quarto then renders them); links to a place on a page arrive, nbdev's to definitions too."
    with clean_checkout(root) as copy:
        result = run(sys.executable, '-c', 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=0)', cwd=copy)
        if result.returncode:
            causes = re.findall(r'^\w+Error: .*', result.stderr, re.MULTILINE)[-1:] + [result.stderr.rpartition('\nException: ')[2].strip()]
            return ['; '.join(causes) + '\nmend the cell: for the site, only exported and import cells run']
        made = {page(p): copy/'_proc'/page(p) for p in notebooks(root)}
        faults = [f'{name} is missing from _proc: is {copy} below a hidden folder?' for name, p in made.items() if not p.exists()]
        def address(file, at=''):
            folder, name = posixpath.split(posixpath.normpath(posixpath.join(posixpath.dirname(at), file)))
            return posixpath.join(folder, re.sub(r'^\d+[a-z]*_', '', name).rpartition('.')[0])
        anchors, linked = {}, set()
        for name, p in made.items():
            shown = json.loads(p.read_text(encoding='utf-8'))['cells'] if p.exists() else []
            begin = first_cell(shown, r'^#+ +Exercises')
            end = first_cell(shown, r'^## +Reference', begin)        # a reference part behind the exercises has no solutions
            faults += [f'{name}, cell {c.get("id")}: a folded solution shows its output: let its `#| code-summary` begin with "Solution"'
                       for c in shown[begin:end] if c.get('outputs') and '#| code-fold: true' in ''.join(c['source'])]
            text = '\n\n'.join(''.join(t) for c in shown for t in ([c['source']] if c['cell_type'] == 'markdown' else
                               [o['data']['text/markdown'] for o in c.get('outputs', []) if 'text/markdown' in o.get('data', {})]))
            code = {c['id']: ''.join(c['source']) for c in shown if c['cell_type'] == 'code' and (c['source'] or c['outputs'])}
            anchors[address(name)] = {slug(h) for h in re.findall(r'^#+ +(.+?) *$', text, re.MULTILINE)} | {*re.findall(r'\{#([\w.-]+)', text)} | {
                (re.findall(r'^#\| *label: *(\S+)', source, re.MULTILINE) or [key])[0] for key, source in code.items()}
            text = text.replace(f']({site_url(root)}/', '](' + '../' * name.count('/'))        # nbdev's own links, if no processor has made them relative
            linked |= {(address(file, name) if file else address(name), anchor, name)
                       for file, anchor in re.findall(r'\]\((?!\w+:)([^)\s#]*\.(?:html|ipynb))?#([\w.-]+)\)', text)}
        return faults + [f'{name} links to {file}.html#{anchor}: no heading, label, cell or exported definition of that page has this name, see `Anchors` in library/analysis/docs'
                         for file, anchor, name in sorted(linked) if anchor not in anchors.get(file, {anchor})]

def readme(root):
    "README.md is what tools/readme.py makes of nbs/index.ipynb."
    result = run(sys.executable, Path(__file__).with_name('readme.py'), '--check', '--root', root, cwd=root)
    return [f'run `make readme`\n{tail(result)}'] if result.returncode else []

def spelling(root):
    "codespell finds nothing in the notebooks' cells and the .md files."
    with tempfile.TemporaryDirectory() as tmp:
        for path in notebooks(root):
            for kind in 'code', 'markdown':
                for key, source, _ in cells(path, kind): (Path(tmp)/f'{page(path)}, cell {key}'.replace('/', '|')).write_text(source, encoding='utf-8')
        for path in root.glob('*.md'): shutil.copy(path, tmp)
        result = run(BIN/'codespell', '--config', root/'.codespellrc', '.', cwd=tmp)
    return [f'mend it, or add the word to .codespellrc\n{result.stdout + result.stderr}'.strip()] if result.returncode else []

def types(root):
    "mypy finds nothing in the package, every function of which says what it takes and what it returns; stubs are up to date."
    result = run(sys.executable, Path(__file__).with_name('check_types.py'), '--root', root, cwd=root)
    return [tail(result, 40)] if result.returncode else []

def words(root):
    "The names and the texts of the package, and the prose of the pages, are the field's: none of tools/words.txt."
    return [f'{path}, {"cell" if kind == "prose" else "line"} {line}: {where!r} has {word!r}; the field: {standard}' for path, line, kind, where, word, standard in find_words(root)]

def book(root):
    "The chapters keep their limits: words, cells, and that cells show something."
    return [*over_limits(root)]

CHECKS = dict(clean=clean, sync=sync, imports=imports, modules=modules, cells=cells_in_order, site=site, links=links, lists=lists, pages=pages, book=book, readme=readme, spelling=spelling, lint=lint, scripts=scripts, types=types, words=words)

def run_check(check, root):
    "The faults that a check found, and how long it took."
    start = time.time()
    try: faults = check(root)
    except Exception as e: faults = [f'the check itself broke, {type(e).__name__}: {e}']
    return faults, time.time() - start

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help='the checks to run: ' + ', '.join(CHECKS))
    parser.add_argument('--root', type=Path, default=ROOT, help='the project to check')
    args = parser.parse_args()
    root, failed = args.root.resolve(), 0
    if unknown := set(args.names) - set(CHECKS): parser.error(f'no check is called {", ".join(sorted(unknown))}')
    names = args.names or [*CHECKS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(run_check, CHECKS[name], root): name for name in names}
        for job in as_completed(jobs):
            faults, seconds = job.result()
            failed += bool(faults)
            for line in [f'FAIL {jobs[job]}: ' + f.replace('\n', '\n     ') for f in faults] or [f'ok   {jobs[job]} ({seconds:.1f} s)']:
                print(line, flush=True)
    print(f'{len(names) - failed} passed, {failed} failed')
    sys.exit(bool(failed))

if __name__ == '__main__': main()
