"""The translator of the page: in node the tokens and translations of Python, in Chromium what a reader does."""
import json
import re
import shutil

import pytest
from browsers import in_chromium, in_node, with_chromium, with_node

from annotated_transformer.cli.live import transformer_live
from annotated_transformer.data.moses import _moses_detokenize, _moses_rules, moses_lc
from annotated_transformer.inference.translator import Translator
from annotated_transformer.inference.evaluation import load_test_split
from annotated_transformer.utils.io import project_path
from annotated_transformer.utils.validation import UserError
from annotated_transformer.web.browser import _MODEL_JS, _quantize_model
from annotated_transformer.web.translator_page import _model_script, build_translator_page

RUN = project_path('nbs/results/multi30k_en_de')
CAPTIONS = '''A woman who is holding an umbrella waits for the bus.
Two men are playing chess in the park while a boy looks on.
A brown dog with a red collar jumps over a wooden fence.
The chef in the white hat cuts onions in a small kitchen.
Four teenagers sit on the stairs of an old building and laugh.
A cyclist in a yellow jersey rides up a steep hill.
An elderly couple dances in front of a fountain at night.
A little girl blows out the candles on her birthday cake.
Workers in orange vests repair the tracks of a tram.
A man is asleep on a bench, his hat over his face.
Children run through the water on a hot summer day.
A guitarist and a drummer play on a stage with blue lights.
The goalkeeper dives to the left, but the ball is already in the net.
A young man wearing headphones types on his laptop in a café.
Three women carry baskets of fruit on their heads.
A tourist takes a picture of a street performer.
A boy in swimming trunks stands at the edge of a diving board.
Someone in a green jacket climbs a wall of ice.
A mother pushes a stroller through the snow.
The government lowered the taxes.'''.split('\n')
HARD = ['"Stop," he said... and left!', "The dogs' owner's 1990's car cost $5,300.50, i.e. a lot.", 'no. 5 vs. no. six; pp. 3', "rock 'n' roll ''quoted'' `text'",
        'a|b [c] <d> & e', 'Wait... what?! 50 % off — really…', 'naïve café, 3,000 people.', '«oui» „nein“ ‘so’', 'U.S.A. vs. them, e.g. that.', "It's o'clock.'", '  ', '雪 and ☃']

MODEL_JS = ''.join(_MODEL_JS)

@pytest.fixture(scope='module')
def translator():
    "With the weights that the page computes with."
    t = Translator.from_pretrained(RUN, device='cpu')
    return Translator([_quantize_model(t.models[0], 8)], t.tokenizer, t.config)

@with_node
def test_preparation():
    "Text is prepared as sacremoses does it, and put together again."
    german = moses_lc(['Der Hund, der bellt, ist "braun" (sehr).', "Geht's? Ja: 3,5 %!", "'so' und \"so\" & [so]"], 'de')
    english, back = in_node(f"{MODEL_JS}; const m = {{moses: {json.dumps(_moses_rules('en'))}}}", [HARD + CAPTIONS, german],
                            'return [given[0].map(s => preprocess(m, s)), given[1].map(s => postprocess(m, s))]')
    assert english == moses_lc(HARD + CAPTIONS, 'en') and back == _moses_detokenize(german, 'de')

@with_node
@pytest.mark.parametrize('beam, off', [(1, ''), (4, ''), (4, 'cache')])
def test_translations(translator, beam, off):
    "The same tokens and the same translations (benchmarks/browser.py asks for a thousand), with and without a cache."
    page = in_node(f'{MODEL_JS}; {_model_script(RUN, CAPTIONS)}; const m = load(globalThis.transformerModel, globalThis.transformerModel.base64); m.off = new Set(["{off}"])', CAPTIONS,
                   f'''return given.map(s => {{ const ids = tokenise(m, preprocess(m, s)), [y] = drain(beamSearch(m, [...ids, m.eos], {beam}))
                       return [ids, postprocess(m, detokenise(m, y.ids))] }})''')
    assert [ids for ids, _ in page] == [ids[:-1].tolist() for ids in translator.encode(CAPTIONS)]
    assert [text for _, text in page] == translator.translate(CAPTIONS, beam=beam)

@with_node
def test_what_the_cache_saves():
    "With it a step reads the newest token, without it all of them."
    read = in_node(f'{MODEL_JS}; {_model_script(RUN, CAPTIONS[:1])}; const m = load(globalThis.transformerModel, globalThis.transformerModel.base64)', ['', 'cache'],
                   """return given.map(off => { m.off = new Set([off]); let state = begin(m, [m.eos]), logits
                       return [1, 2, 3].map(n => { [logits, state] = decode(m, Array(n).fill(m.bos), state); return logits.length }) })""")
    assert read == [[1, 1, 1], [1, 2, 3]]

READER = r"""
const faults = [], said = [], view = document.querySelector('.transformer-translator'), at = name => view.querySelector('.tt-' + name)
addEventListener('error', e => faults.push(e.message))
for (const name of ['error', 'warn', 'log']) console[name] = (...words) => faults.push(words.join(' '))
const wait = async (what, truth) => { for (let i = 0; i < 4000; i++) { if (truth()) return; await new Promise(go => setTimeout(go, 5)) } throw Error('no ' + what + ': ' + at('german').textContent + at('note').textContent) }
const type = text => { at('ask').querySelector('textarea').value = text; at('ask').querySelector('textarea').dispatchEvent(new Event('input')) }
const ready = () => view.getAttribute('aria-busy') == 'false', text = () => at('german').textContent, ribbons = () => at('ribbons').querySelectorAll('path').length
const read = async () => {
  for (const [english, german] of GIVEN) { type(english); await wait(german, () => ready() && text() == german) }
  said.push(['ribbons', ribbons() > 20])
  for (const token of [...at('queries').children].slice(0, 4)) { token.click(); said.push(['story ' + at('story').textContent, at('story').textContent.includes('“' + token.textContent + '” attends to: ')]) }
  for (const e of at('choose').querySelectorAll('input')) { e.click(); said.push([e.parentNode.textContent, ribbons() > 0]); if (e.type == 'checkbox') e.click() }
  const positions = view.querySelector('[data-part=positions]'), before = text()
  positions.click(); await wait('other', () => ready() && text() != before && at('whole').textContent.includes(before))
  positions.click(); await wait('whole again', () => ready() && text() == before && !at('whole').textContent)
  const cache = view.querySelector('[data-part="key-value cache"]')
  cache.click(); await wait('no cache', () => ready() && at('whole').textContent.startsWith('Without the cache the sentence is the same, after ') && text() == before); cache.click()
  positions.click(); type(GIVEN[0][0]); await wait('another sentence', () => ready() && text() != before && !at('whole').textContent); positions.click()
  type(''); await wait('request', () => at('note').textContent.includes('Type an') && at('answer').hidden)
  type('word '.repeat(100)); await wait('refusal', () => at('note').textContent.includes('79 at most'))
  type(GIVEN[0][0]); await wait('whole', () => ready() && text() == GIVEN[0][1] && !at('answer').hidden)
  said.push(['no wider than the screen', document.documentElement.scrollWidth <= innerWidth])
  for (const e of view.querySelectorAll('input, button, textarea')) said.push([e.outerHTML.slice(0, 80), Boolean(e.closest('label') || e.getAttribute('aria-label') || e.textContent.trim())])
}
read().catch(e => faults.push(String(e))).then(() => { document.body.textContent = 'SAID' + JSON.stringify([faults, said]) + 'END' })"""

@with_chromium
def test_reader(translator, tmp_path):
    "From a file beside the page, as on the site: typing, tokens, heads, layers, parts; wrong input gets one line."
    given = [*zip(CAPTIONS[:3], translator.translate(CAPTIONS[:3]))]
    (tmp_path / 'model.js').write_text(_model_script(RUN, CAPTIONS[:1]))
    page = build_translator_page(RUN, CAPTIONS[:2], script='model.js', megabytes=3.8)
    faults, seen = in_chromium(tmp_path, f'<!doctype html><meta charset="utf-8"><body>{page}<script>{READER.replace("GIVEN", json.dumps(given))}</script>')
    assert not faults and seen and all(truth for _, truth in seen), (faults, [what for what, truth in seen if not truth])

@with_chromium
def test_missing_model(tmp_path):
    "Without its file the page says which one is missing; it is not asked for before the reader is near."
    page = build_translator_page(RUN, CAPTIONS[:1], script='absent.js', megabytes=3.8)
    script = """let far = null; const line = () => document.querySelector('.tt-note').textContent
        const wait = () => { if (line().includes('could not')) document.body.textContent = 'SAID' + JSON.stringify([far, line()]) + 'END'; else setTimeout(wait, 20) }; wait()
        setTimeout(() => { far = line(); document.querySelector('.transformer-translator').scrollIntoView() }, 500)"""
    far, line = in_chromium(tmp_path, f'<!doctype html><meta charset="utf-8"><body><div style="height: 9000px"></div>{page}<script>{script}</script>')
    assert far == '' and line.startswith('absent.js could not be loaded')

def test_a_page_needs_no_server_and_its_data_end_no_script():
    "The model is within the page; without a sentence there is no page."
    page = build_translator_page(RUN, ['A man walks </script> his dog.'])
    assert not re.search(r'https?:(?!//www.w3.org/2000/svg)|fetch\(|\bid="', page) and page.count('</script>') == 2
    with pytest.raises(ValueError, match='examples is empty'): build_translator_page(RUN, [])

def test_command(trained, tmp_path, capsys):
    "A run of Moses tokens becomes a translator with sentences of its test split to try; options of the other page are refused."
    config = json.loads((trained / 'config.json').read_text())
    shutil.copytree(trained, tmp_path / 'run')
    config['data']['preprocessing'] = 'moses_lc'
    (tmp_path / 'run/config.json').write_text(json.dumps(config))
    transformer_live(str(tmp_path / 'run'), str(tmp_path / 'page.html'))
    sources, _ = load_test_split(tmp_path / 'run')
    page = (tmp_path / 'page.html').read_text()
    assert 'transformer-translator' in page and json.dumps(sources[0]) in page
    for option in dict(small=True), dict(bits=16):
        with pytest.raises(UserError, match='leave out --small and --bits'): transformer_live(str(tmp_path / 'run'), str(tmp_path / 'other.html'), **option)
