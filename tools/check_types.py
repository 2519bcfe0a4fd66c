"""Check the types of the package with mypy, methods added by fastcore's `patch` read as part of their classes.
A user's mypy does not read them so: a module with such methods has a stub (.pyi) beside it, which `--write` makes.

    python tools/check_types.py             the package, and whether the stubs are up to date
    python tools/check_types.py --write     the stubs anew
    python tools/check_types.py --keep DIR  and leave what mypy read in DIR
"""
import argparse, ast, re, shutil, subprocess, sys, tempfile
from pathlib import Path

ROOT, PACKAGE = Path(__file__).resolve().parents[1], 'annotated_transformer'
KINDS = {'patch': '', 'patch(as_prop=True)': '@property', 'patch(cls_method=True)': '@classmethod'}
EXPORTS = re.compile(r'^__all__ = .*\n', re.MULTILINE)

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

def inferred_attributes(source):
    "{class: attributes that no annotation declares} of a module; stubgen would leave out their types, or the attributes."
    found = {}
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef): continue
        declared = {ast.unparse(n.target).removeprefix('self.') for n in ast.walk(cls) if isinstance(n, ast.AnnAssign)}
        found[cls.name] = sorted({n.attr for n in ast.walk(cls) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                                  and ast.unparse(n.value) == 'self'} - declared)
    return found

def reveal_types(folder, names, mypy):
    "{name: its type as mypy reveals it} of `module.Class.attribute` names."
    lines = [f'import {module}' for module in sorted({name.rsplit('.', 2)[0] for name in names})]
    for i, name in enumerate(names):
        owner, _, attribute = name.rpartition('.')
        lines += [f'x{i}: {owner}', f'reveal_type(x{i}.{attribute})']
    (folder / 'probe.py').write_text('\n'.join(lines))
    output = subprocess.run([*mypy, '-m', 'probe'], cwd=folder, capture_output=True, text=True).stdout
    return dict(zip(names, re.findall(r'^probe\.py:\d+: note: Revealed type is "(.*)"$', output, re.MULTILINE), strict=True))

def declare(source, module, types):
    "The source of a module with the inferred types declared in its classes."
    tree, imports = ast.parse(source), set()
    for cls in tree.body:
        if not isinstance(cls, ast.ClassDef): continue
        declared = []
        for name, revealed in types.items():
            owner, _, attribute = name.rpartition('.')
            if owner != f'{module}.{cls.name}': continue
            revealed = re.sub(rf'\b(builtins|{re.escape(module)})\.', '', revealed)
            imports |= {f'import {used}' for used in re.findall(r'([\w.]+)\.\w+', revealed)}
            declared += ast.parse(f'{attribute}: {revealed}').body
        cls.body[:0] = declared
    tree.body[:0] = ast.parse('\n'.join(sorted(imports))).body
    return ast.unparse(tree)

def make_stubs(gathered_root, root, mypy):
    "{path of a stub: its text} of each module with patched methods."
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(shutil.copytree(gathered_root, Path(tmp) / 'source'))
        paths = [p for p in sorted(folder.rglob('*.py')) if p.read_text() != (root / p.relative_to(folder)).read_text()]
        modules = ['.'.join(p.relative_to(folder).with_suffix('').parts) for p in paths]
        names = [f'{module}.{cls}.{attribute}' for p, module in zip(paths, modules)
                 for cls, found in inferred_attributes(p.read_text()).items() for attribute in found]
        types, exports = reveal_types(folder, names, mypy) if names else {}, {}
        for path, module in zip(paths, modules):
            source = declare(path.read_text(), module, types)
            exports[path.relative_to(folder).with_suffix('.pyi')] = ''.join(EXPORTS.findall(source))
            path.write_text(EXPORTS.sub('', source))          # stubgen would leave out what is not exported
        if paths: subprocess.run([Path(sys.executable).with_name('stubgen'), '--quiet', '--include-private', '-o', tmp, *paths], check=True)
        return {name: (Path(tmp) / name).read_text() + export for name, export in exports.items()}

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--keep', type=Path, help='a new folder for what mypy reads')
    parser.add_argument('--write', action='store_true', help='write the stubs')
    parser.add_argument('--root', type=Path, default=ROOT, help='the project to check')
    args = parser.parse_args()
    root = args.root.resolve()
    with tempfile.TemporaryDirectory() as tmp:
        folder = args.keep or Path(tmp)
        for path in sorted((root / PACKAGE).rglob('*.py')):
            if path.name == '_modidx.py': continue
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(gathered(path.read_text()))
        shutil.copy(ROOT / 'mypy.ini', folder)
        mypy = [sys.executable, '-m', 'mypy', '--cache-dir', root / '.mypy_cache']
        code = subprocess.run([*mypy, '--pretty', '--no-error-summary', '-p', PACKAGE], cwd=folder).returncode
        stubs = {} if code else make_stubs(folder, root, mypy)
    if code: sys.exit(code)
    there = {p.relative_to(root): p.read_text() for p in (root / PACKAGE).rglob('*.pyi')}
    stale = sorted(name for name in {*stubs, *there} if stubs.get(name) != there.get(name))
    if stale and not args.write: sys.exit(f'out of date: {", ".join(map(str, stale))}; run `python tools/check_types.py --write`')
    for name in stale:
        if name in stubs: (root / name).write_text(stubs[name])
        else: (root / name).unlink()

if __name__ == '__main__': main()
