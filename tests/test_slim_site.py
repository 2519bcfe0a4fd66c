"tools/slim_site.py: of the site's rules of style those stay that a page can use."
import json, sys
from helpers import ROOT

sys.path.insert(0, str(ROOT / 'tools'))
import matplotlib
import tinycss2
from fontTools.ttLib import TTFont
from slim_site import keep_used, pages_words, slim_font, slim_search, slim_style, used

STYLE = '''
body { color: red } .seen, .unseen { top: 0 } .unseen { left: 0 } .seen .unseen > a { top: 1px } .made-here:hover { top: 2px }
p:not(.unseen) { top: 3px } :is(.unseen, .seen) b { top: 4px } .aa-Panel { top: 5px }
@media (max-width: 9px) { .unseen { top: 6px } .seen::before { content: ".unseen{}" } } @media print { .unseen { top: 7px } }
@font-face { font-family: F; src: url(f.woff2) }'''

def test_a_rule_stays_if_a_page_or_a_script_names_its_classes(tmp_path):
    (tmp_path / 'page.html').write_text('<p class="seen">')
    (tmp_path / 'site_libs').mkdir()
    (tmp_path / 'site_libs/a.js').write_text('e.className = "made-here"')
    (style := tmp_path / 'site_libs/style.css').write_text(STYLE)
    slim_style(style, pages_words(tmp_path))
    kept = style.read_text()
    for there in 'body', '.seen, .unseen', '.made-here:hover', 'p:not(.unseen)', ':is(.unseen, .seen) b', '.aa-Panel', '.seen::before', 'content: ".unseen{}"', '@font-face': assert there in kept, there
    for gone in 'left: 0', 'top: 1px', 'top: 6px', 'print': assert gone not in kept, gone
    assert keep_used(tinycss2.parse_stylesheet(kept, skip_whitespace=True), pages_words(tmp_path)) == kept

def test_every_class_of_a_selector_must_be_there():
    assert used('.a.b > c', {'a', 'b'}) and not used('.a.b > c', {'a'}) and used('a[href=".x"]', set())

def test_icons_that_are_named_stay_also_the_second_time(tmp_path):
    font = TTFont(f'{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf')
    font.flavor = 'woff'
    font.save(path := tmp_path / 'icons.woff')
    (style := path.with_suffix('.css')).write_text(r'.bi-house::before { content: "\61"; } .bi-tree::before { content: "\62"; }')
    for _ in range(2):
        slim_font(path, {'bi-house'})
        slim_style(style, {'bi-house'})
        assert {*TTFont(path).getBestCmap()} == {0x61}

def test_the_search_index_has_each_formula_once(tmp_path):
    "As TeX if that has no commands, else as it is shown; and only where it stands alone."
    def formula(shown, tex): return f'<math display="inline"><semantics>{shown}<annotation encoding="application/x-tex">{tex}</annotation></semantics></math>'
    (tmp_path / 'page.html').write_text(formula('<mi>d</mi><mi>k</mi>', 'd_{k}') + formula('<mi>a</mi><mo>&lt;</mo><mi>b</mi>', '\\mathbf{a} &lt; b') + formula('<mi>u</mi>', 'u'))
    (index := tmp_path / 'search.json').write_text(json.dumps([dict(href='page.html#here', text='width dkd_{k}, a<b\\mathbf{a} < b, uu in a vacuum')]))
    for _ in range(2):
        slim_search(index)
        assert json.loads(index.read_text()) == [dict(href='page.html#here', text='width d_k, a<b, u in a vacuum')]
