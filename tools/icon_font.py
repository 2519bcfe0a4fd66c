"Quarto runs this after it has rendered: of the 2,000 icons in the template's font only those stay that the site shows."
import logging, os, re
from pathlib import Path
from fontTools import subset

logging.getLogger('fontTools').setLevel('ERROR')         # of a byte too many in the font's names
site = Path(os.environ.get('QUARTO_PROJECT_OUTPUT_DIR', '_docs'))/'site_libs'
for font in site.glob('bootstrap/bootstrap-icons.woff'):
    codes = dict(re.findall(r'\.bi-([a-z0-9-]+)::before *{ *content: *"\\([0-9a-f]+)"', font.with_suffix('.css').read_text()))
    texts = [p.read_text(encoding='utf-8') for p in (*site.parent.rglob('*.html'), *site.rglob('quarto*.js'))]
    names = {name for text in texts for name in re.findall(r'\bbi-([a-z0-9-]+)', text)} & {*codes}
    options = subset.Options(flavor='woff')
    small, subsetter = subset.load_font(font, options), subset.Subsetter(options)
    subsetter.populate(unicodes=[int(codes[name], 16) for name in names])
    subsetter.subset(small)
    subset.save_font(small, font, options)
