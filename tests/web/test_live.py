"""The page that runs a Transformer: in node the same numbers as in PyTorch, with each part missing too, and no old answer after a fault.

    python tests/web/test_live.py runs/demo     the whole examination of the demo's model; writes nbs/results/live.json
"""
import json
import random
import re
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import browsers
import pytest
import torch
from browsers import NODE, with_node
from helpers import number_lines
from torch.nn.utils.rnn import pad_sequence

from annotated_transformer.cli.live import transformer_live
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.inference.evaluation import load_test_split as held_out
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.web.browser import _list_ablations, _MODEL_JS, _serialize_model, _pack_weights, _quantize_model, ablate, _translate_ablated
from annotated_transformer.web.live import build_live_page, _NUMBERS_JS, _select_ablations, _wrong_digit

def in_node(translator, question, given=None, bits=32):
    "What JavaScript returns that has the model `m` and what is `given`."
    data = _serialize_model(translator, ['a b'], bits)
    program = ''.join((*_MODEL_JS, _NUMBERS_JS)) + f'''
const scores = pairs => pairs.flatMap(([x, y]) => decode(m, y, begin(m, x))[0]).map(row => [...row])
const data = {json.dumps(data)}, m = load(data, data.base64)'''
    return browsers.in_node(program, given, question)

def ids_of(translator, sources, targets):
    t = translator.tokenizer
    return [*zip([x.tolist() for x in translator.encode(sources)], [[t.bos_id, *y] for y in t.encode(targets)])]

@torch.no_grad()
def scores(model, pairs): return torch.cat([model(torch.tensor([x]), torch.tensor([y]))[0] for x, y in pairs])

def apart(a, b): return (torch.as_tensor(a) - b).abs().max().item()

@pytest.fixture(scope='module')
def model(trained): return Translator.from_pretrained(trained, device='cpu')

@pytest.fixture(scope='module')
def pairs(): return [*zip(number_lines('en', 200).split('\n'), number_lines('de', 200).split('\n'))]

# ---- the same numbers

@with_node
def test_logits(model, pairs):
    "Of 200 numbers: the same with the same weights, close with 16 bits."
    given, ours = ids_of(model, *zip(*pairs)), model.models[0]
    for bits, most in (32, 1e-4), (16, 2e-3):
        page = torch.tensor(in_node(model, 'return scores(given)', given, bits))
        assert apart(page, scores(ours, given)) < most and apart(page, scores(_quantize_model(ours, bits), given)) < 1e-4

@with_node
@pytest.mark.parametrize('beam, alpha', [(1, .6), (4, .6), (4, 0), (8, 1.5)])
def test_search(model, pairs, beam, alpha):
    "The same hypothesis, log-probability and score."
    t, src = model.tokenizer, model.encode([s for s, _ in pairs[:60]])
    ours = beam_search(model.models, pad_sequence(src, True, t.pad_id), beam, alpha, n_best=1, bos_id=t.bos_id, eos_id=t.eos_id)
    page = in_node(model, f'return given.map(x => drain(beamSearch(m, x, {beam}, {alpha}))[0]).map(y => [y.ids, y.logProb, y.score])', [x.tolist() for x in src])
    for (ids, log_prob, score), (y, *_) in zip(page, ours):
        assert ids == y.ids and abs(log_prob - y.log_prob) < 1e-3 and abs(score - y.score) < 1e-3

@with_node
def test_each_switch(model, pairs):
    given, off = ids_of(model, *zip(*pairs[20:30])), [[name] for name in _list_ablations(model.models[0])]
    off += [['positions', 'mask'], ['encoder 0', 'memory 0 1', 'scale'], []]
    page = in_node(model, 'return given[1].map(off => { m.off = new Set(off); return [scores(given[0]), given[0].map(([x]) => detokenise(m, drain(beamSearch(m, x))[0].ids))] })',
                   [given, off])
    whole = scores(model.models[0], given)
    for names_, (numbers, written) in zip(off, page):
        with ablate(model.models[0], names_) as without: ours = scores(without, given)
        assert apart(numbers, ours) < 1e-3, names_
        assert (apart(whole, ours) > .01) == bool(names_), f'{names_} changes nothing'
        assert written == _translate_ablated(model, [s for s, _ in pairs[20:30]], names_), names_
    assert torch.equal(whole, scores(model.models[0], given))

@with_node
@pytest.mark.parametrize('changes', [dict(norm='pre'), dict(positions='learned', max_len=40), dict(tie_embeddings=False, d_k=12, d_v=20, h=2), dict(N=3, d_model=20, h=2, d_k=10, d_v=10)])
def test_other_transformers(model, pairs, changes):
    "Untrained, all weights drawn at random."
    torch.manual_seed(0)
    other = Transformer(replace(model.models[0].config, **changes), model.tokenizer.pad_id).eval()
    for p in other.parameters(): torch.nn.init.normal_(p, std=.2)
    given, twin = ids_of(model, *zip(*pairs[100:108])), Translator([other], model.tokenizer, model.config)
    assert apart(in_node(twin, 'return scores(given)', given), scores(other, given)) < 1e-4
    src = [s for s, _ in pairs[100:104]]
    assert in_node(twin, 'return given.map(x => detokenise(m, drain(beamSearch(m, x))[0].ids))', [x for x, _ in given[:4]]) == _translate_ablated(twin, src)

# ---- text

ODD = ['', ' ', 'a', ' twenty-one', '  two  three ', 'twenty▁one', 'Zwölf Ä 12', 'one million', 'q q', 'TWENTY', '日本 🙂', '<s> one </s>', 'a\tb']

@with_node
@pytest.mark.parametrize('byte_fallback', [False, True])
def test_tokenizer(model, pairs, byte_fallback):
    texts = [x for pair in pairs for x in pair]
    t = Tokenizer.train(texts, 340 if byte_fallback else 90, byte_fallback)
    twin = Translator([model.models[0]], t, model.config)
    ids, back = in_node(twin, 'return [given.map(s => tokenise(m, s)), given.map(s => detokenise(m, tokenise(m, s)))]', texts + ODD)
    assert ids == t.encode(texts + ODD) and back == t.decode(ids)

@with_node
def test_overlapping_pairs(model):
    "The leftmost of equal pairs is joined first."
    t, rng = Tokenizer.train(['aa aaaa ab bba bbb'] * 20, 11, False), random.Random(0)
    texts = [''.join(rng.choice('aab ') for _ in range(12)) for _ in range(200)]
    assert in_node(Translator(model.models, t, model.config), 'return given.map(s => tokenise(m, s))', texts) == t.encode(texts)

@with_node
def test_names(model):
    numbers = [*range(1200), 21000, 100000, 101000, 999999, *random.Random(0).sample(range(10**6), 2000)]
    small = dict(en=[number_speller('en')(n) for n in range(100)], de=[number_speller('de')(n) for n in range(100)])
    en, de, back = in_node(model, 'const name = namers(given[0]); return [given[1].map(n => name.en(n)), given[1].map(n => name.de(n)), '
                           'given[1].slice(0, 3300).filter((_, i) => i % 30 == 0).map(n => numberOf(name.en, name.en(n)))]', [small, numbers])
    assert en == [*map(number_speller('en'), numbers)] and de == [*map(number_speller('de'), numbers)] and back == numbers[:3300:30]

@with_node
def test_gloss(model):
    "The parts under an answer spell the German name, and each carries its number."
    numbers = [*range(1, 1200), 2000, 21000, 100000, 101000, 121021, 999999, *random.Random(1).sample(range(1, 10**6), 500)]
    small = [number_speller('de')(n) for n in range(100)]
    parts = in_node(model, 'return given[1].map(n => germanParts(given[0], n))', [small, numbers])
    assert [''.join(part for part, _ in row) for row in parts] == [*map(number_speller('de'), numbers)]
    assert parts[20] == [['ein', 1], ['und', 'and'], ['zwanzig', 20]]

@with_node
@pytest.mark.parametrize('typed, said', [*((wrong, 'Type a whole number from 1 to 999,999.') for wrong in ('', '   ', '0', '000', '1000000', '7,000,000', '-3', '−4', '+8', '1.5', '2,5', '1e3', '4x', 'two 3', '12,34')),
    ('twenty-oone', 'never have read “oone”'), ('five five', 'not the name of a number'), ('two hundred five', 'spells it “two hundred and five”'), ('five ☃', 'does not know ☃'),
    ('one ' * 90, 'too many'), ('TWENTY-ONE', ''), ('721', ''), ('042', ''), ('1,005', ''), ('twenty-one', '')])
def test_wrong_input(model, typed, said):
    small = dict(en=[number_speller('en')(n) for n in range(100)], de=[number_speller('de')(n) for n in range(100)])
    data = dict(names=small, source='en', target='de', most=80, words=sorted(set(re.findall(r'\w+', number_lines('en', 1100)))))
    answer = in_node(model, 'const {text, n, stop, says} = understand(m, given[0], given[1]); return [text, n, stop || says]', [data, typed])
    assert said in answer[2] and bool(said) == bool(answer[2]), answer
    if not said: assert answer[0] == number_speller('en')(answer[1])

@with_node
def test_longest_input(model):
    "Learned positions have an end: what fits is read, one token more is too much."
    torch.manual_seed(0)
    other = Transformer(replace(model.models[0].config, positions='learned', max_len=12), model.tokenizer.pad_id).eval()
    answers = in_node(Translator([other], model.tokenizer, model.config), '''return given.map(n => {
        const {text, stop} = understand(m, {words: [], most: 99}, 'x'.repeat(n)), ids = tokenise(m, text)
        return [ids.length, stop || drain(beamSearch(m, [...ids, m.eos])).length] })''', [*range(8, 14)])
    assert {11, 12} <= {n for n, _ in answers} and all(('11 at most' in said) if n > 11 else said > 0 for n, said in answers), answers

# ---- the page without a browser: as much of a document as its program uses

DOCUMENT = r"""
class Element {
  constructor(tag, attributes = {}) { Object.assign(this, {tag, class: '', children: [], on: {}, dataset: {}, kept: {}}, attributes) }
  setAttribute(k, v) { if (k.startsWith('data-')) this.dataset[k.slice(5)] = v; else this[k] = v }
  addEventListener(k, act) { this.on[k] = act }
  append(...more) { this.children.push(...more) }
  prepend(...more) { this.children.unshift(...more) }
  replaceChildren(...others) { this.children = others }
  get textContent() { return this.children.map(c => c.textContent ?? c).join('') }
  set textContent(text) { this.children = [text] }
  get all() { return this.children.flatMap(c => c.all ? [c, ...c.all] : []) }
  querySelectorAll(s) { return this.all.filter(e => s[0] == '.' ? e.class.split(' ').includes(s.slice(1)) : s[0] == '[' ? s.slice(6, -1) in e.dataset : e.tag == s) }
  querySelector(s) { return this.querySelectorAll(s)[0] || (this.kept[s] ??= new Element(s)) }
  getContext() { return {createImageData: () => ({data: {set() {}}}), putImageData() {}} }
}
const view = new Element('div'), at = name => view.querySelector('.tl-' + name), pause = ms => new Promise(go => setTimeout(go, ms))
for (const [, tag, rest] of FORM.matchAll(/<(\w+)([^>]*)>/g)) view.append(new Element(tag, {class: /class="(.*?)"/.exec(rest)?.[1] || ''}))
for (const _ of 'abc') at('scrub').append(new Element('input'))
for (const text of SCRIPTS) view.append(Object.assign(new Element('script'), {textContent: text}))
globalThis.document = {createElement: tag => new Element(tag), createElementNS: (_, tag) => new Element(tag), querySelectorAll: () => [view]}
const field = at('ask').querySelector('input'), click = e => e.on.click({}), titled = title => view.all.find(e => e.tag == 'button' && e.textContent == title)
const untick = off => view.all.find(e => e.dataset.off == off).on.change({target: {checked: false}})
const choose = (key, value) => view.all.find(e => e.dataset.state == key).on.change({target: {value}})
const type = text => { field.value = text; field.on.input({}); return pause(200) }
const seen = async () => { do await pause(100); while (view['aria-busy'] == 'true'); return {source: field.value, note: at('note').textContent, hidden: view.querySelectorAll('.tl-answer').map(e => Boolean(e.hidden)),
  text: at('text').textContent.replace('·', ''), tokens: at('source').textContent, looks: at('looks').textContent} }
"""

def in_page(page, deeds):
    "What the page of a run shows in node after something was done to it."
    *scripts, program = re.findall(r'<script.*?>(.*?)</script>', page, re.DOTALL)
    form = re.search(r'</style>(.*?)<script', page, re.DOTALL)[1]
    program = f'const FORM = {json.dumps(form)}, SCRIPTS = {json.dumps(scripts)}\n{DOCUMENT}\n{program}\n(async () => {{ await seen(); {deeds} }})().then(x => console.log(JSON.stringify(x)))'
    said = subprocess.run([NODE], input=program, capture_output=True, text=True, timeout=100)
    assert said.returncode == 0, said.stderr[-2000:]
    return json.loads(said.stdout)

@pytest.fixture(scope='module')
def page(trained): return build_live_page(trained, bits=32)

@with_node
@pytest.mark.parametrize('kind, off', [('encoder', 'encoder 0'), ('decoder', 'decoder 0'), ('memory', 'decoder 0')])
def test_layer_on_view_is_off(model, page, kind, off):
    "No weights of its attention: the next number is answered all the same."
    seen = in_page(page, f"choose('kind', {kind!r}); untick({off!r}); click(at('draw')); return seen()")
    assert seen['text'] == _translate_ablated(model, [seen['source']], [off])[0] and 'skipped' in seen['looks'] and not any(seen['hidden'])
    assert seen['tokens'].replace('␣', ' ').strip() == seen['source']

@with_node
def test_refused(model, page):
    "One line, and nothing of the number before; with the next number everything is there again."
    typed = ['0', 'forty', '', '-7', '2.5', '88', '1000000']
    seen = in_page(page, f"const all = []; for (const text of {typed}) {{ await type(text); untick('scale'); all.push(await seen()) }} return all")
    for s in seen: assert all(s['hidden']) == any(s['hidden']) == (s['source'] not in ('forty', '88')) == s['note'].startswith('Type a whole'), s
    assert [seen[1]['text'], seen[5]['text']] == _translate_ablated(model, ['forty', 'eighty-eight'], ['scale'])

@with_node
@pytest.mark.parametrize('part', ['lines', 'text', 'bars', 'stations', 'score'])
def test_fault_of_the_page(model, page, part):
    "Whatever throws, no old answer is left; the next number has one again."
    broken, mended = in_page(page, f"""const faulty = at({part!r})
        faulty.replaceChildren = () => {{ throw Error('planted') }}
        process.on('uncaughtException', e => {{ if (e.message != 'planted') throw e }})
        setTimeout(() => click(at('draw')))
        const broken = await seen()
        delete faulty.replaceChildren; click(at('draw')); return [broken, await seen()]""")
    assert all(broken['hidden']) and 'a fault of its own' in broken['note'], broken
    assert not any(mended['hidden']) and mended['text'] == _translate_ablated(model, [mended['source']])[0] and 'fault' not in mended['note']

# ---- the page

def test_page(trained, tmp_path, capsys):
    "It asks nobody for anything, says so little that it fits, and refuses what it cannot hold."
    transformer_live(str(trained), str(tmp_path / 'page.html'))
    assert 'page.html' in capsys.readouterr().out
    page = (tmp_path / 'page.html').read_text()
    assert not re.search(r'(?:src|href)=(?!"data:,")|url\(|@import|fetch\(|XMLHttp|\bid="', page.replace('http://www.w3.org/2000/svg', ''))
    for message, call in (('bits=8', lambda: build_live_page(trained, max_chars=1000)), ('32, 16 or 8', lambda: build_live_page(trained, bits=4)), ('.html', lambda: transformer_live(str(trained), 'page.txt')),
                          ('part=', lambda: _translate_ablated(Translator.from_pretrained(trained), ['one'], ['memory 7 0']))):
        with pytest.raises(ValueError, match=message): call()

def test_what_is_said_follows_from_the_results():
    "A model that without positions writes ten too much each time; exchanged digits are no wrong digit."
    en, de = number_speller('en'), number_speller('de')
    counted = [(en(n), de(n)) for n in range(21, 41)]
    story, = _select_ablations({(): [y for _, y in counted], ('positions',): [de(n + 10) for n in range(21, 41)]}, counted, numbers=True)
    assert (story['off'], story['source']) == (('positions',), 'forty')
    for part in '0 of 20 are right', '“fünfzig”, not “vierzig”', 'In 20 of the wrong ones only the tens are wrong': assert part in story['text']
    assert _wrong_digit([(en(n), de(n % 10 * 10 + n // 10)) for n in range(21, 100) if n % 11]) == ''

def test_data_cannot_end_the_script(trained):
    page = build_live_page(trained, small=True)
    assert page.count('</script>') == 3 and '</' not in re.search(r'json">(.*?)</script>', page, re.DOTALL)[1]

def test_other_text_is_refused(own):
    config = json.loads((own / 'config.json').read_text())
    (own / 'config.json').write_text(json.dumps(config | dict(data=config['data'] | dict(preprocessing='moses_lc'))))
    with pytest.raises(ValueError, match='raw text'): build_live_page(own)

def test_words_are_refused(model):
    words = Tokenizer.train_word_level(['one two', 'eins zwei'], 10)
    with pytest.raises(ValueError, match='byte pairs'): _serialize_model(Translator(model.models, words, model.config), ['one two'])

def test_bad_weights(model):
    torch.manual_seed(0)
    broken = Transformer(model.models[0].config)
    with torch.no_grad(): broken.output_projection.weight[3, 3] = float('nan')
    with pytest.raises(ValueError, match='NaN'): _pack_weights(broken)

# ---- the whole examination

def examine(run_dir):
    demo, (sources, references) = Translator.from_pretrained(run_dir, device='cpu'), held_out(run_dir)
    ours, given = demo.models[0], ids_of(demo, sources, references)
    t = demo.tokenizer
    record = dict(parameters=sum(p.numel() for p in ours.parameters()), numbers=len(sources), logits={}, search=[], switches={}, page={})
    whole, half = scores(ours, given[:200]), _quantize_model(ours, 32)
    half.half().float()
    record['logits']['half precision'] = apart(scores(half, given[:200]), whole)
    for bits in 32, 16, 8: record['logits'][f'{bits} bits'] = apart(in_node(demo, 'return scores(given)', given[:200], bits), whole)
    for bits, beam in product((16, 8), (1, 4)):
        src = pad_sequence([torch.tensor(x) for x, _ in given], True, t.pad_id)
        found = [h[0].ids for h in beam_search([ours], src, beam, n_best=1, bos_id=t.bos_id, eos_id=t.eos_id)]
        page, ms = in_node(demo, f'const go = () => given.map(x => drain(beamSearch(m, x, {beam}))[0].ids); const begun = process.cpuUsage().user; '
                           'const found = go(); return [found, (process.cpuUsage().user - begun) / 1000 / given.length]', [x for x, _ in given], bits)
        record['search'].append(dict(bits=bits, beam=beam, milliseconds=round(ms, 1), same=sum(a == b for a, b in zip(page, found)),
                                     right=sum(a == b for a, b in zip(t.decode(page), references))))
    for name in _list_ablations(ours):
        page, written = in_node(demo, 'm.off = new Set([given[2]]); return [scores(given[0]), given[1].map(x => detokenise(m, drain(beamSearch(m, x))[0].ids))]',
                                [given[:20], [x for x, _ in given[:50]], name])
        with ablate(ours, [name]) as without: difference = apart(page, scores(without, given[:20]))
        found = _translate_ablated(demo, sources[:50], [name])
        record['switches'][name] = dict(logits=difference, right=sum(a == b for a, b in zip(found, references)), same=sum(a == b for a, b in zip(found, written)))
        print(name, record['switches'][name], flush=True)
    for small, bits in (False, 16), (False, 8), (True, 8): record['page'][f'{"small" if small else "full"}, {bits} bits'] = len(build_live_page(run_dir, small, bits).encode())
    return record

if __name__ == '__main__':
    start = time.time()
    Path('nbs/results/live.json').write_text(json.dumps(examine(sys.argv[1]), indent=1) + '\n')
    print(f'{time.time() - start:.0f} s')
