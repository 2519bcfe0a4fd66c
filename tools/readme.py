"Write README.md and its images from nbs/index.ipynb, and nbs/llms.txt from the titles; with --check, say what is not up to date."
import argparse, posixpath, re, sys
from configparser import BasicInterpolation, ConfigParser
from pathlib import Path
import nbformat
from nbconvert import MarkdownExporter

IMAGES = 'nbs/images/readme'
DIRECTIVE = re.compile(r'^#\| *([\w-]+):? *(.*)\n?', re.MULTILINE)
CALLOUT = re.compile(r'^::: *\{\.callout-(\w+)(?: title="(.*?)")?.*?\}\n(.*?)\n:::$', re.MULTILINE | re.DOTALL)
SITE_ONLY = re.compile(r'^(:{3,}) *\{\.content-visible when-format="html"\}\n.*?\n\1$', re.MULTILINE | re.DOTALL)
README_ONLY = re.compile(r'^(:{3,}) *\{\.content-visible unless-format="html"\}\n(.*?)\n\1$', re.MULTILINE | re.DOTALL)
SECTIONS = {'The book': '[0-9]*.ipynb', 'Predecessors': 'predecessors/*.ipynb', 'Experiments': 'lab/*.ipynb', 'Guides': 'guide/*.ipynb',
           'The library': 'library/**/*.ipynb'}
LINK = re.compile(r'(\]\()(?!\w+:|[/#])([^)\s]+)(\))')

def rewrite_links(markdown, site):
    "Links that start in nbs/ start in the root, a page is linked on the site with its notebook beside it; callouts are plain quotes."
    def quote(m):
        text = f'**{m[2] or m[1].capitalize()}**\n\n{m[3].strip()}'
        return '\n'.join(f'> {line}'.rstrip() for line in text.splitlines())
    def link(m):
        here = posixpath.normpath(posixpath.join('nbs', m[2]))
        page, _, anchor = m[2].partition('#')
        if not page.endswith('.ipynb'): return m[1] + here + m[3]
        return f'{m[1]}{page_url(page, site)}{"#" * bool(anchor)}{anchor}) <sup>[nb](nbs/{page})</sup>'
    return LINK.sub(link, CALLOUT.sub(quote, README_ONLY.sub(r'\2', SITE_ONLY.sub('', markdown))))

def settings(root):
    config = ConfigParser(interpolation=BasicInterpolation())
    config.read(root/'settings.ini', encoding='utf-8')
    return config['DEFAULT']

def page_url(notebook, site):
    "Where a notebook, named by its path below nbs/, is on the site."
    folder, name = posixpath.split(notebook)
    return posixpath.join(site, folder, re.sub(r'^[0-9]+[a-z]*_', '', name).removesuffix('.ipynb') + '.html')

def site_url(root): c = settings(root); return c['doc_host'] + c['doc_baseurl']

def prepare_cell(cell, site):
    "Make `cell` what the site shows of it, without `#|` lines; False if that is nothing."
    if cell.cell_type == 'markdown': cell.source = rewrite_links(cell.source, site)
    for o in cell.get('outputs', []):
        if 'text/markdown' in o.get('data', {}): o.data['text/markdown'] = rewrite_links(''.join(o.data['text/markdown']), site)
    if cell.cell_type != 'code': return cell.cell_type == 'markdown'
    flags = dict(DIRECTIVE.findall(cell.source))
    cell.source = DIRECTIVE.sub('', cell.source).strip()
    cell.metadata.caption, cell.metadata.alt = (flags.get(f'fig-{name}', '').strip('"\'') for name in ('cap', 'alt'))
    if flags.get('echo') == 'false': cell.metadata.transient = {'remove_source': True}
    if flags.get('output') == 'false': cell.outputs = []
    if any('text/html' in o.get('data', {}) for o in cell.outputs): return False       # a page within the page
    return bool(cell.source) and 'hide' not in flags and flags.get('include') != 'false'

def llms(root):
    "A table of contents for language models (llmstxt.org): each chapter's title, address and one line."
    c = settings(root)
    lines = [f'# {c["title"]}', '', f'> {c["description"]}']
    for shelf, pattern in SECTIONS.items():
        lines += ['', f'## {shelf}', '']
        for path in sorted((root/'nbs').glob(pattern)):
            name = path.relative_to(root/'nbs').as_posix()
            if not (first := re.match(r'# (.+)\n\n> (.+)', nbformat.read(path, 4).cells[0].source)): sys.exit(f'{name}: begin with `# title` and `> one line`')
            title, line = first.groups()
            lines.append(f'- [{title}]({page_url(name, site_url(root))}): {line}')
    return '\n'.join(lines) + '\n'

def readme(root):
    "The files to write: {path: bytes}."
    nb = nbformat.read(root/'nbs'/'index.ipynb', 4)
    nb.metadata.language_info = {'name': 'python'}
    nb.cells = [c for c in nb.cells if prepare_cell(c, site_url(root))]
    text, resources = MarkdownExporter().from_notebook_node(nb, dict(unique_key='index', output_files_dir=IMAGES))
    def image(m):
        data = nb.cells[int(m[2])].metadata
        return f'![{data.get("alt", "")}]{m[1]}' + (f'\n\n*{data.caption}*' if data.get('caption') else '')
    text = re.sub(r'!\[\w+\](\(\S*/index_(\d+)_\d+\.\w+\))', image, text)
    text = re.sub(r'\n([ \t]*\n){2,}', '\n\n', re.sub(r'^[ \t]+$', '', text, flags=re.MULTILINE)).strip() + '\n'
    return {'README.md': text.encode(), 'nbs/llms.txt': llms(root).encode(), **resources['outputs']}

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--check', action='store_true', help='change nothing; exit 1 if a file is not up to date')
    parser.add_argument('--root', type=Path, default=Path(__file__).resolve().parents[1], help='the project')
    args = parser.parse_args()
    files = readme(args.root)
    stale = {p.relative_to(args.root).as_posix() for p in (args.root/IMAGES).glob('*')} - set(files)
    changed = [f for f, data in files.items() if not (args.root/f).exists() or (args.root/f).read_bytes() != data]
    for f in [*changed, *stale]: print('out of date:' if args.check else 'wrote' if f in files else 'removed', f)
    if args.check: sys.exit(bool(changed or stale))
    for f in changed:
        (args.root/f).parent.mkdir(parents=True, exist_ok=True)
        (args.root/f).write_bytes(files[f])
    for f in stale: (args.root/f).unlink()

if __name__ == '__main__': main()
