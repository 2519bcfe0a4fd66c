"""The live page in Chromium, where there is one: what a reader does, and every click after every other one; each answer is the model's own to the number shown."""
import json
from html import escape

import pytest
from browsers import in_chromium, with_chromium
from helpers import TRAINED_OVERRIDES, number_lines, write_files

from annotated_transformer.cli.live import transformer_live
from annotated_transformer.inference.translator import Translator
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.web.browser import _MODEL_JS, _translate_ablated
from annotated_transformer.web.live import _NUMBERS_JS

pytestmark = with_chromium

@pytest.fixture(scope='module')
def two_layers(tmp_path_factory):
    "Learned positions: it cannot write more than 24 tokens, however much of it is off."
    folder = write_files(tmp_path_factory.mktemp('corpus'), train_en=number_lines('en', 120), train_de=number_lines('de', 120))
    train(get_recipe('demo', **TRAINED_OVERRIDES | dict(N=2, h=2, d_model=32, d_ff=64, vocab_size=80, positions='learned', max_len=24)), ('text', 'en', 'de'), folder / 'run', folder)
    return folder / 'run'

def page_of(run_dir, folder, small):
    transformer_live(str(run_dir), str(folder / 'live.html'), small, 16)
    return (folder / 'live.html').read_text()

# ---- a reader with a screen of 390 pixels

READER = """
const frame = document.querySelector('iframe'), faults = [], said = []
const wait = async (what, truth) => { for (let i = 0; i < 4000; i++) { if (truth()) return; await new Promise(go => setTimeout(go, 5)) } throw Error('no ' + what) }
const read = async () => {
  await wait('page', () => frame.contentDocument && frame.contentDocument.querySelector('.tl-text'))
  const page = frame.contentDocument, $ = (name, view = page) => view.querySelector('.tl-' + name), answer = () => $('text').textContent
  frame.contentWindow.addEventListener('error', e => faults.push(e.message))
  for (const name of ['error', 'warn', 'log']) frame.contentWindow.console[name] = (...words) => faults.push(words.join(' '))
  await wait('answer', answer)
  const field = page.querySelector('input'), type = text => { field.value = text; field.dispatchEvent(new frame.contentWindow.Event('input')) }
  const now = () => $('score') && $('score').textContent.split('as it is now')[1]
  for (const [text, expected] of GIVEN) { type(text); await wait(expected, () => answer() == expected) }
  type('five ☃'); await wait('word of warning', () => $('note').textContent.includes('☃'))
  type(''); await wait('request', () => $('note').textContent.includes('Type a')); type(GIVEN[0][0]); await wait('whole', () => answer() == GIVEN[0][1])
  said.push(['wide', page.documentElement.scrollWidth <= 390])
  for (const button of [...page.querySelectorAll('.tl-experiments button')].slice(0, SMALL ? 0 : 3)) {
    button.click(); const claimed = / ([0-9]+) of ([0-9]+) are right/.exec($('story').textContent)
    await wait('score', () => now().includes(`${claimed[1]} of ${claimed[2]} right`) && !now().includes('so far'))
    said.push([button.textContent, true])
  }
  for (const box of page.querySelectorAll('[data-off]')) { box.click(); box.click() }
  for (const e of page.querySelectorAll('input, button, select')) said.push([e.outerHTML.slice(0, 80), Boolean(e.closest('label') || e.ariaLabel || e.getAttribute('aria-label') || e.textContent.trim())])
  if (!SMALL) { page.querySelectorAll('.tl-scrub button')[1].click(); said.push(['step', $('at').textContent.startsWith('step ')]) }
  for (const i of [0, 1, 4]) { const token = page.querySelectorAll('.tl-lines button')[i]; token.focus(); token.click(); said.push(['focus stays', page.activeElement.dataset.key == token.dataset.key]) }
}
read().catch(e => faults.push(String(e))).then(() => { document.body.textContent = 'SAID' + JSON.stringify([faults, said]) + 'END' })"""

@pytest.mark.parametrize('small', [False, True])
def test_reader(two_layers, tmp_path, small):
    sources = ['seven', 'twenty-one', 'ninety-nine']
    given = [*zip(sources, _translate_ablated(Translator.from_pretrained(two_layers, device='cpu'), sources))]
    reader = READER.replace('GIVEN', json.dumps(given)).replace('SMALL', json.dumps(small)).replace('</', '<\\/')
    faults, seen = in_chromium(tmp_path, '<!doctype html><meta charset="utf-8"><body><iframe width="390" height="800" '
                               f'srcdoc="{escape(page_of(two_layers, tmp_path, small))}"></iframe><script>{reader}</script>')
    assert not faults and seen and all(truth for _, truth in seen), (faults, [what for what, truth in seen if not truth])

# ---- every click after every other one

CLICKS = r"""
let now = 'start', seen = 0
const faults = [], view = document.querySelector('.transformer-live'), [about, weights] = view.querySelectorAll('script')
addEventListener('error', e => faults.push(`${now}: ${e.message}`))
for (const name of ['error', 'warn']) console[name] = (...words) => faults.push(`${now}: ${words.join(' ')}`)
const data = JSON.parse(about.textContent), m = load(data, weights.textContent), known = {}
const at = name => view.querySelector('.tl-' + name), all = css => [...view.querySelectorAll(css)], field = at('ask').querySelector('input')
const texts = elements => [...elements].map(e => e.textContent), pause = ms => new Promise(go => setTimeout(go, ms))
const piece = id => id == m.eos ? 'end' : m.pieces[id].replaceAll('▁', '␣')
const answer = (typed, off, [beam = 4, alpha = .6]) => {            // the model asked anew, for what is shown
  const {text, stop} = understand(m, data, typed)
  if (stop) return {stop}
  m.off = new Set(off)
  const src = [...tokenise(m, text), m.eos], search = beamSearch(m, src, beam, alpha)
  for (;;) {
    const {value, done} = search.next()
    if (done) return {text: detokenise(m, value[0].ids) || '(nothing)', source: src.map(piece), target: [...value[0].ids, m.eos].map(piece)}
  }
}
const check = async () => {
  do await pause(0); while (view.getAttribute('aria-busy') == 'true')
  const off = all('[data-off]').filter(e => !e.checked).map(e => e.dataset.off), slides = all('[data-slide]').map(e => +e.value)
  const right = known[[field.value, off, slides]] ??= answer(field.value, off, slides), visible = all('.tl-answer').some(e => e.checkVisibility())
  const same = (what, a, b) => { if (JSON.stringify(a) != JSON.stringify(b)) faults.push(`${now}: ${field.value}, ${what} ${a}, not ${b}`) }
  seen++
  if (right.stop) return same('shown', [visible, at('note').textContent], [false, right.stop])
  const kind = all('[data-state=kind]')[0]?.value || 'memory', layer = all('[data-state=layer]')[0]?.value ?? m.N - 1
  same('text', [visible, at('text').textContent.replace('·', '')], [true, right.text])
  same('tokens', texts(at('source').children), right.source.slice(0, -1))
  same('left', texts(all('[data-key^="0 "]')), kind == 'encoder' ? right.source : right.target)
  same('skipped', at('looks').textContent.includes('skipped'), off.includes(`${kind == 'encoder' ? kind : 'decoder'} ${layer}`))
  if (!data.small) same('written', texts(at('written').children), right.target)
}
const doing = async (...deeds) => { for (const [name, act] of deeds) { now = `${now.split(' → ').at(-1)} → ${name}`; await act(); await check() } }
const set = (name, e, value) => [name, () => { e.value = value; e.dispatchEvent(new Event(e.tagName == 'SELECT' ? 'change' : 'input')); return pause(e == field ? 125 : 0) }]
const slide = e => [e.dataset.slide, () => set('', e, e.value == 1 ? e.defaultValue : 1)[1]()]
const run = async () => {
  while (!at('text').textContent) await pause(5)
  const boxes = all('[data-off]').map(e => [e.dataset.off, () => e.click()]), switches = [...boxes, ...all('[data-slide]').map(slide)]
  const others = all('.tl-draw, .tl-experiments button').map(e => [e.textContent, () => e.click()]), deeds = [...switches, ...others]
  for (const [i, one] of others.entries()) {
    await doing(one)
    for (const two of [...switches, ...others.slice(i)]) await doing(two, one)
  }
  for (const [off, undo] of boxes) if (!all('[data-off]').find(e => e.dataset.off == off).checked) await doing([off, undo])
  for (const [i, one] of switches.entries()) for (const two of switches.slice(i)) await doing(one, two, one, two)        // ends as it begins
  const layers = boxes.filter(([off]) => off.split(' ').length == 2)
  for (const kind of all('[data-state=kind] option')) for (const layer of all('[data-state=layer] option')) for (const off of layers)
    await doing(set(kind.value, kind.parentNode, kind.value), set(layer.value, layer.parentNode, layer.value), off, others[0], off)
  for (const [i, deed] of deeds.entries()) await doing(set('wrong input', field, ['', '0', '1000000', '-7', '2.5'][i % 5]), deed)
  return [switches.length, others.length, seen]
}
run().catch(e => faults.push(String(e))).then(counts => { document.body.textContent = 'SAID' + JSON.stringify([faults, counts]) + 'END' })"""

@pytest.mark.nightly
@pytest.mark.parametrize('small', [False, True])
def test_every_pair_of_clicks(two_layers, tmp_path, small):
    "Experiments, switches, search, another number, after one another; each layer on view while each is off; and each click beside a wrong input."
    clicks = f"<script>{{{''.join((*_MODEL_JS, _NUMBERS_JS))}{CLICKS}}}</script></body>"
    faults, counts = in_chromium(tmp_path, page_of(two_layers, tmp_path, small).replace('</body>', clicks))
    assert not faults, (len(faults), faults[:20])
    switches, others, seen = counts
    assert switches == (5 if small else 21) and others >= (1 if small else 5) and seen >= (switches + others) ** 2, counts
