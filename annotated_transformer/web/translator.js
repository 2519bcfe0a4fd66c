const unescapeXml = piece => escapes.reduceRight((t, [from, to]) => t.replaceAll(to, from), piece)
const startTranslator = view => {
  const at = name => view.querySelector(`.tt-${name}`)
  const data = JSON.parse(at('data').textContent), field = at('ask').querySelector('textarea')
  const state = {kind: data.attention, layer: data.layer, heads: new Set(), pick: null}
  let m = null, stop = () => {}, whole = {}         // whole: the last answer of every part
  const say = line => { at('note').textContent = line }
  const busy = truth => view.setAttribute('aria-busy', `${truth}`)
  const guard = act => (...given) => {             // no old answer survives a fault
    try { return act(...given) } catch (fault) {
      stop(); busy(false); at('answer').hidden = true
      say('The page failed here, by a fault of its own. The console describes it.')
      throw fault
    }
  }
  const textOf = ids => postprocess(m, detokenise(m, ids))
  const search = function* (src, show) {
    const work = beamSearch(m, src)
    for (;;) {
      const {value, done} = work.next()
      if (done) return value[0]
      if (value) show(textOf(value[0].ids.slice(1)))
      yield
    }
  }
  const translate = guard(() => {
    stop()
    const text = field.value.trim().replace(/\s+/g, ' ')
    at('answer').hidden = !text
    if (!m || !text) return say(text ? '' : 'Type an English sentence.')
    const src = [...tokenise(m, preprocess(m, text)), m.eos], begun = performance.now()
    if (src.length > 80) { at('answer').hidden = true; return say(
      `${src.length - 1} tokens are too many for this page: 79 at most.`) }
    busy(true)
    const writing = written => { at('german').textContent = `${written} …` }
    stop = inSlices(guard, search(src, writing), ({ids}) => {
      const ms = Math.max(1, Math.round(performance.now() - begun)), german = textOf(ids)
      at('german').textContent = german || '(nothing)'
      if (!m.off.size) whole = {text, german, ms}
      at('whole').textContent = !m.off.size || whole.text != text ? '' : whole.german != german
        ? `With every part: ${whole.german}` : m.off.has('cache')
        ? `Without the cache the sentence is the same, after ${ms} ms in place of ${whole.ms}.`
        : 'Without this part the sentence comes out as before. Try another.'
      say(rareWords(src)); busy(false)
      at('time').textContent = `${src.length - 1} tokens in, ${ids.length} out, ${ms} ms here`
      Object.assign(state, {src, ids: [...ids, m.eos], pick: null})
      inspect(); draw()
    })
  })
  const rareWords = src => {                       // those put together from pieces
    const words = []
    for (const id of src.slice(0, -1)) {
      const piece = m.pieces[id]
      if (piece.startsWith('▁') || !words.length) words.push([])
      words[words.length - 1].push(unescapeXml(piece).replace('▁', ''))
    }
    const rare = words.filter(w => w.length > 1 && /\p{L}{3}/u.test(w.join(''))).map(w => w.join(''))
    return rare.length ? `Rare or new to this model, and spelled from pieces: ${rare.join(', ')}.` : ''
  }
  const inspect = () => {                          // the weights of every head
    state.weights = {encoder: {}, decoder: {}, memory: {}}
    m.look = (kind, layer, weights) => { state.weights[kind][layer] = weights }
    decode(m, [m.bos, ...state.ids.slice(0, -1)], begin(m, state.src))
    m.look = null
  }
  const sides = () => {                            // keys above, queries below
    const {src, ids} = state, before = [m.bos, ...ids.slice(0, -1)]
    return {memory: [src, ids], encoder: [src, src], decoder: [before, ids]}[state.kind]
  }
  const wordOf = id => id == m.eos ? 'end' : id == m.bos ? 'begin'
    : unescapeXml(m.pieces[id]).replace(/^▁/, '') || '␣'
  const heads = () => range(m.h).filter(head => !state.heads.has(head))
  const isOff = head => m.off.has(`${state.kind} ${state.layer} ${head}`)
  const weight = (head, key, query) => isOff(head) ? 0
    : state.weights[state.kind][state.layer]?.[head][query][key] || 0
  const sumOf = (key, query) => heads().reduce((sum, head) => sum + weight(head, key, query), 0)
    / Math.max(1, heads().length)
  const token = (side, id, i) => make('button', {type: 'button', 'data-at': `${side} ${i}`,
    class: `tt-token${id == m.eos || id == m.bos ? ' tt-mark' : ''}${
      /^▁|^<\/?s>$/.test(m.pieces[id]) ? ' tt-begins' : ''}`,
    'aria-label': `${wordOf(id)}, token ${i + 1}`}, wordOf(id))
  const draw = guard(() => {
    if (!state.ids) return
    const rows = sides(), focus = view.contains(document.activeElement)
      && document.activeElement.dataset.at
    rows.forEach((ids, side) => at(side ? 'queries' : 'keys').replaceChildren(
      ...ids.map((id, i) => token(side, id, i))))
    at('keys').lang = state.kind == 'decoder' ? 'de' : 'en'
    at('queries').lang = state.kind == 'encoder' ? 'en' : 'de'
    at('map').classList.remove('tt-tall')
    const wide = [...at('map').querySelectorAll('.tt-row')].some(e => e.scrollWidth > e.clientWidth)
    at('map').classList.toggle('tt-tall', wide)
    if (focus) at('map').querySelector(`[data-at="${focus}"]`)?.focus()
    drawRibbons()
  })
  const drawRibbons = () => {
    const tall = at('map').classList.contains('tt-tall'), [keys, queries] = sides()
    const box = at('ribbons').getBoundingClientRect(), lanes = heads()
    const middle = row => [...row.children].map(e => {
      const r = e.getBoundingClientRect()
      return tall ? r.top + r.height / 2 - box.top : r.left + r.width / 2 - box.left
    })
    const [a, b] = [middle(at('keys')), middle(at('queries'))], depth = tall ? box.width : box.height
    const svg = make('svg', {width: '100%', height: '100%', 'aria-hidden': 'true'})
    const curve = (x, y) => tall ? `M0 ${x}C${depth / 2} ${x} ${depth / 2} ${y} ${depth} ${y}`
      : `M${x} 0C${x} ${depth / 2} ${y} ${depth / 2} ${y} ${depth}`
    lanes.forEach((head, lane) => queries.forEach((_, q) => keys.forEach((_, k) => {
      const w = weight(head, k, q), picked = state.pick && state.pick[1] == (state.pick[0] ? q : k)
      if (w < (picked ? .02 : .12)) return
      const shift = 4 * (lane - (lanes.length - 1) / 2)
      svg[picked ? 'append' : 'prepend'](make('path', {d: curve(a[k] + shift, b[q] + shift),
        fill: 'none', stroke: data.colours[head % data.colours.length],
        'stroke-width': Math.max(.6, 5 * w),
        'stroke-opacity': picked ? .95 : state.pick ? .08 : .12 + .6 * w}))
    })))
    at('ribbons').replaceChildren(svg)
    for (const e of at('map').querySelectorAll('.tt-token')) e.setAttribute('aria-pressed',
      `${Boolean(state.pick) && e.dataset.at == state.pick.join(' ')}`)
    describe(keys, queries)
  }
  const describe = (keys, queries) => {            // what the chosen token attends to
    const skipped = !state.weights[state.kind][state.layer]
    const blind = range(m.h).every(isOff)
    if (skipped || blind || !state.pick) { at('story').textContent = skipped
      ? 'This layer is skipped: it has no attention weights.' : blind
      ? 'Without cross-attention the decoder does not see the English sentence.'
      : 'Point at a token, or choose it, to see what it attends to.'; return }
    const [side, i] = state.pick, others = side ? keys : queries
    const share = j => side ? sumOf(j, i) : sumOf(i, j)
    const seen = [...others.keys()].filter(j => share(j) >= .03).sort((p, q) => share(q) - share(p))
    at('story').textContent = `“${wordOf((side ? queries : keys)[i])}” ${side ? 'attends to'
      : 'is attended to by'}: ${seen.slice(0, 4).map(j =>
      `${wordOf(others[j])} ${Math.round(100 * share(j))} %`).join(' · ') || 'nothing'}${
      heads().length > 1 ? ' (mean of the heads shown)' : ''}.`
  }
  const pick = e => {
    const chosen = e.target.closest('.tt-token')
    if (!chosen && e.type != 'click') return       // a click beside them: all of them
    state.pick = chosen && chosen.dataset.at.split(' ').map(Number)
    drawRibbons()
  }
  for (const name of ['pointerover', 'focusin', 'click']) at('map').addEventListener(name, pick)
  const option = (name, label, checked, act, attributes = {}) => make('label', {class: 'tt-option'},
    make('input', {type: 'radio', name: `${name} ${data.key}`, checked, autocomplete: 'off',
                   onchange: act, ...attributes}), make('span', {}, label))
  const group = (title, ...content) => make('fieldset', {}, make('legend', {}, title), ...content)
  const set = changes => { Object.assign(state, changes, {pick: null}); draw() }
  const toggle = (all, name, on) => all[on ? 'delete' : 'add'](name)
  const buildControls = () => {
    const kinds = {memory: 'cross-attention', encoder: 'encoder', decoder: 'decoder'}
    at('choose').append(
      group('Attention', ...Object.entries(kinds).map(([kind, label]) =>
        option('kind', label, kind == state.kind, () => set({kind})))),
      group('Layer', ...range(m.N).map(layer =>
        option('layer', layer, layer == state.layer, () => set({layer})))),
      group('Heads drawn', ...range(m.h).map(head => option('head', head, true, e => {
        toggle(state.heads, head, e.target.checked); drawRibbons()
      }, {type: 'checkbox', style: `accent-color: ${data.colours[head % data.colours.length]}`}))))
    const across = range(m.N).flatMap(l => range(m.h).map(head => `memory ${l} ${head}`))
    const parts = {'positions': ['positions'], 'causal mask': ['mask'], 'cross-attention': across,
      'division by √dₖ': ['scale'], 'key-value cache': ['cache'],
      ...Object.fromEntries(range(m.N).map(l => [`encoder layer ${l}`, [`encoder ${l}`]]))}
    at('parts').append(group('Take a part away, and the sentence is translated without it', ...Object.entries(parts).map(([label, names]) =>
      option('part', label, true, e => {
        names.forEach(name => toggle(m.off, name, e.target.checked))
        translate()
      }, {type: 'checkbox', 'data-part': label}))))
  }
  const receive = guard(model => {
    m = load(model, model.base64)
    buildControls(); say(''); translate()
  })
  let later = 0
  field.addEventListener('input', () => { clearTimeout(later); later = setTimeout(translate, 150) })
  field.addEventListener('keydown', e => { if (e.key == 'Enter') { e.preventDefault(); translate() } })
  const example = e => { field.value = e.target.textContent; translate() }
  at('examples').append('Try: ', ...data.examples.map(text =>
    make('button', {type: 'button', onclick: example}, text)))
  field.value = data.examples[0]
  new ResizeObserver(draw).observe(view)
  if (data.model) return setTimeout(() => receive(data.model))
  const failed = () => say(`${data.script} could not be loaded: without the weights nothing is translated.`)
  const request = () => {
    field.removeEventListener('focus', request)
    say(`Loading the model, ${data.megabytes} MB …`)
    document.head.append(make('script', {src: data.script, onerror: failed,
      onload: () => receive(globalThis.transformerModel)}))
  }
  if (navigator.connection?.saveData) {
    say(`Choose the field to load the model, ${data.megabytes} MB.`)
    field.addEventListener('focus', request)
  } else {                                         // not before the reader is near
    const near = new IntersectionObserver(seen => {
      if (seen.some(part => part.isIntersecting)) { near.disconnect(); request() }
    }, {rootMargin: '600px'})
    near.observe(view)
  }
}
for (const view of document.querySelectorAll('.transformer-translator:not([data-ready])')) {
  view.dataset.ready = 'yes'
  startTranslator(view)
}
