"""Quarto runs this after it has rendered: of the template's icons and rules of style only those stay that some page can use,
and the search index has each formula once."""
import html, json, logging, os, re
from pathlib import Path
import tinycss2
from fontTools import subset

def pages_words(site):
    "All words in the site's pages and scripts: names of classes that something can have."
    files = [*site.rglob('*.html'), *site.rglob('*.js')]
    return {word for path in files for word in re.findall(r'[\w-]+', path.read_text(encoding='utf-8'))}

def used(selector, words):
    "Whether each class in a selector is a word of the site. A class that scripts may put together stays."
    bare = re.sub(r'\([^()]*\)', '', re.sub(r'\([^()]*\)|\[[^]]*\]', '', selector))        # what :not, :is and :where say decides nothing
    return all(name in words or name.startswith(('aa-', 'tippy', 'headroom')) for name in re.findall(r'\.([A-Za-z_][\w-]*)', bare))

def keep_used(rules, words):
    "The rules as text, without those that no page can use."
    kept = []
    for rule in rules:
        if rule.type == 'qualified-rule':
            selectors = tinycss2.serialize(rule.prelude)
            if any(used(s, words) for s in re.split(r',(?![^(]*\))', selectors)): kept.append(f'{selectors}{{{tinycss2.serialize(rule.content)}}}')
        elif rule.type == 'at-rule' and rule.lower_at_keyword in ('media', 'supports'):
            inner = keep_used(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True), words)
            if inner: kept.append(f'@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}')
        else: kept.append(rule.serialize())
    return ''.join(kept)

def slim_style(path, words):
    rules = tinycss2.parse_stylesheet(path.read_text(encoding='utf-8'), skip_comments=True, skip_whitespace=True)
    path.write_text(keep_used(rules, words), encoding='utf-8')

def slim_font(font, words):
    style = font.with_suffix('.css').read_text(encoding='utf-8')       # codes are escaped there, or signs after slim_style
    codes = {name: int(code[1:], 16) if code[0] == '\\' else ord(code)
             for name, code in re.findall(r'\.bi-([a-z0-9-]+)::before *{ *content: *"(\\[0-9a-f]+|[^"\\])"', style)}
    options = subset.Options(flavor='woff')
    small, subsetter = subset.load_font(font, options), subset.Subsetter(options)
    subsetter.populate(unicodes=[code for name, code in codes.items() if f'bi-{name}' in words])
    subsetter.subset(small)
    subset.save_font(small, font, options)

def slim_search(path):
    "A page has each formula twice, as MathML and as its TeX, and so has the index: one stays, TeX where it has no commands."
    entries, formulas = json.loads(path.read_text(encoding='utf-8')), {}
    for entry in entries:
        page = entry['href'].split('#')[0]
        if page not in formulas:
            found = re.findall(r'<math\b(.*?)<annotation[^>]*>(.*?)</annotation>', (path.parent / page).read_text(encoding='utf-8'), re.S)
            pairs = {(html.unescape(re.sub(r'<[^>]*>', '', '<math' + shown)), html.unescape(tex)) for shown, tex in found}
            formulas[page] = sorted(pairs, key=lambda pair: -len(''.join(pair)))
        for shown, tex in formulas[page]:
            once = shown if '\\' in tex else re.sub('[{}]', '', tex)
            entry['text'] = re.sub(rf'(?<!\w){re.escape(shown + tex)}(?!\w)', once.replace('\\', r'\\'), entry['text'])
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding='utf-8')

if __name__ == '__main__':
    logging.getLogger('fontTools').setLevel('ERROR')         # of a byte too many in the font's names
    site = Path(os.environ.get('QUARTO_PROJECT_OUTPUT_DIR', '_docs'))
    words = pages_words(site)
    for font in site.glob('site_libs/bootstrap/bootstrap-icons.woff'): slim_font(font, words)
    for style in site.glob('site_libs/bootstrap/*.css'): slim_style(style, words)
    for index in site.glob('search.json'): slim_search(index)
