"""Make the site's font for formulas, nbs/book-math.woff2, from Latin Modern Math.

    nbdev_docs && python tools/math_font.py latinmodern-math.otf

It keeps the glyphs of the formulas on the rendered pages, ASCII, roots, and the italic letters that browsers
put in place of single ones. It needs `pip install fonttools brotli`; Debian's package fonts-lmodern has the font.
"""
import html, re, sys
from pathlib import Path
from fontTools import subset

ROOT = Path(__file__).resolve().parents[1]
ITALIC = ''.join(chr(c) for c in (0x210E, *range(0x1D434, 0x1D468), *range(0x1D6FC, 0x1D71C)))     # h, A–z, α–ϖ

def characters(folder):
    "What stands in the formulas of the pages."
    text = ''.join(p.read_text(encoding='utf-8') for p in folder.glob('*.html'))
    shown = re.sub(r'<annotation.*?</annotation>', '', ''.join(re.findall(r'<math.*?</math>', text, re.DOTALL)), flags=re.DOTALL)
    return set(html.unescape(re.sub(r'<[^>]*>', '', shown)))

def main(source):
    used = characters(ROOT/'_docs')
    if not used: sys.exit('_docs has no page with a formula: run `nbdev_docs` first')
    options = subset.Options(layout_features=['ssty', 'math'], flavor='woff2', hinting=False, desubroutinize=True)
    font, subsetter = subset.load_font(source, options), subset.Subsetter(options)
    if missing := {c for c in used if ord(c) not in font.getBestCmap()}: print('not in the font:', ' '.join(sorted(missing)))
    subsetter.populate(text=''.join({*used, *map(chr, range(32, 127)), *ITALIC, '√'}))      # a root has no character in the page
    subsetter.subset(font)
    for record in font['name'].names:      # as its licence asks of what is derived from it
        if record.nameID in (1, 3, 4, 6): record.string = 'BookMath'
    path = ROOT/'nbs'/'book-math.woff2'
    subset.save_font(font, path, options)
    print(f'{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes, {font["maxp"].numGlyphs} glyphs')

if __name__ == '__main__': main(sys.argv[1])
