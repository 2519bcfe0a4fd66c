"""Check the types of the package with mypy, methods added by fastcore's `patch` read as part of their classes.
A user's mypy does not read them so: a module with such methods has a stub (.pyi) beside it, which `--write` makes.

    python tools/check_types.py             the package, and whether the stubs are up to date
    python tools/check_types.py --write     the stubs anew
    python tools/check_types.py --keep DIR  and leave what mypy read in DIR
"""
import argparse, ast, shutil, subprocess, sys, tempfile
from pathlib import Path

ROOT, PACKAGE = Path(__file__).resolve().parents[1], 'annotated_transformer'
KINDS = {'patch': '', 'patch(as_prop=True)': '@property', 'patch(cls_method=True)': '@classmethod'}

def gathered(source):
    "The source of a module with each patched method in its class, where that is in the module, too."
    tree, lines = ast.parse(source), source.split('\n')
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    methods, taken = {name: [] for name in classes}, set()
    for node in tree.body:
        kinds = [ast.unparse(d) for d in getattr(node, 'decorator_list', [])]
        if not isinstance(node, ast.FunctionDef) or not kinds or kinds[-1] not in KINDS: continue
        first = node.args.args[0]
        owner = ast.unparse(first.annotation)
        if owner not in classes: continue
        above = [KINDS[k] if k in KINDS else f'@{k}' for k in kinds]
        body = lines[node.lineno - 1:node.end_lineno]
        line = first.lineno - node.lineno
        body[line] = body[line].replace(f'{first.arg}:{owner}', first.arg, 1)
        methods[owner] += ['', *(f'    {line}' for line in (*filter(None, above), *body))]
        taken |= {*range(node.decorator_list[0].lineno - 1, node.end_lineno)}
    ends = {node.end_lineno - 1: methods[name] for name, node in classes.items()}
    out = []
    for i, line in enumerate(lines):
        if i not in taken: out.append(line)
        out += ends.get(i, [])
    return '\n'.join(out)

def stub(source):
    "A gathered module without the bodies of its functions; those of `__init__` stay, since mypy infers attributes from them."
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != '__init__': node.body = ast.parse('...').body
    return ast.unparse(tree) + '\n'

def same(a, b):
    "Whether two stubs have the same code: versions of Python write it differently."
    return None not in (a, b) and ast.dump(ast.parse(a)) == ast.dump(ast.parse(b))

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--keep', type=Path, help='a new folder for what mypy reads')
    parser.add_argument('--write', action='store_true', help='write the stubs')
    parser.add_argument('--root', type=Path, default=ROOT, help='the project to check')
    args = parser.parse_args()
    root, stubs = args.root.resolve(), {}
    with tempfile.TemporaryDirectory() as tmp:
        folder = args.keep or Path(tmp)
        for path in sorted((root / PACKAGE).rglob('*.py')):
            if path.name == '_modidx.py': continue
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(whole := gathered(source := path.read_text()))
            if whole != source: stubs[path.relative_to(root).with_suffix('.pyi')] = stub(whole)
        shutil.copy(ROOT / 'mypy.ini', folder)
        command = [sys.executable, '-m', 'mypy', '--cache-dir', root / '.mypy_cache', '--pretty', '-p', PACKAGE]
        code = subprocess.run(list(map(str, command)), cwd=folder).returncode
    if code: sys.exit(code)
    there = {p.relative_to(root): p.read_text() for p in (root / PACKAGE).rglob('*.pyi')}
    stale = sorted(name for name in {*stubs, *there} if not same(stubs.get(name), there.get(name)))
    if stale and not args.write: sys.exit(f'out of date: {", ".join(map(str, stale))}; run `python tools/check_types.py --write`')
    for name in stale:
        if name in stubs: (root / name).write_text(stubs[name])
        else: (root / name).unlink()

if __name__ == '__main__': main()
