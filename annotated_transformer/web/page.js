const shown = piece => piece.replaceAll('▁', '␣')
const percent = p => p < .01 ? '< 1 %' : `${Math.round(100 * p)} %`
const differing = (text, right) => {               // before, what differs, after
  if (right === null || text == right) return [text, '', '']
  let i = 0, j = 0
  while (i < text.length && text[i] == right[i]) i++
  while (j < Math.min(text.length, right.length) - i
         && text[text.length - 1 - j] == right[right.length - 1 - j]) j++
  const end = text.length - j
  return [text.slice(0, i), text.slice(i, end) || '·', text.slice(end)]
}
const start = (view, data, base64) => {
  const at = name => view.querySelector(`.tl-${name}`), m = load(data, base64)
  const state = {beam: 4, alpha: .6, step: 0, kind: 'memory', layer: m.N - 1, y: null,
                 head: 'all', side: 0, at: 0, score: {done: 0, right: 0}}
  const field = at('ask').querySelector('input')
  const name = data.names && namers(data.names)
  const rightFor = (text, n) => {
    const known = data.tests.find(([source]) => source == text)
    return known ? known[1] : n === null || !name ? null : name[data.target](n)
  }
  let stop = () => {}
  const show = (y, line) => {                      // an answer, or one line instead
    state.y = y
    at('note').textContent = line
    for (const e of view.querySelectorAll('.tl-answer')) e.hidden = !y
    view.setAttribute('aria-busy', 'false')
  }
  const guard = act => (...given) => {             // no old answer survives a fault
    try { return act(...given) } catch (fault) {
      stop()
      show(null, 'The page failed here, by a fault of its own, and has no answer. '
        + 'The browser’s console describes the fault.')
      throw fault
    }
  }
  const ask = guard(() => {
    stop()
    const {text, n, says, stop: refused} = understand(m, data, field.value)
    if (refused) return show(null, refused)
    view.setAttribute('aria-busy', 'true')
    const src = [...tokenise(m, text), m.eos], steps = [], begun = performance.now()
    const work = function* () {
      const search = beamSearch(m, src, state.beam, state.alpha)
      for (;;) {
        const {value, done} = search.next()
        if (done) return value[0]
        if (value) steps.push(value)
        yield
      }
    }
    stop = inSlices(guard, work(), y => {
      const ids = [...y.ids, m.eos]
      Object.assign(state, {n, src, says, y, ids, steps, right: rightFor(text, n),
        step: Math.min(state.step, ids.length - 1), written: detokenise(m, y.ids),
        ms: performance.now() - begun})
      drawAnswer()
      inspect()
      if (state.fresh) farthest()
      state.fresh = false
      draw()
    }, 50)
  })
  const inspect = () => {        // all attention, and all vectors of the source
    state.weights = {encoder: {}, decoder: {}, memory: {}}; state.stations = []
    m.look = (kind, layer, weights) => { state.weights[kind][layer] = weights }
    m.see = (title, X) => state.stations.push([title, X])
    const begun = begin(m, state.src)
    m.see = null
    decode(m, [m.bos, ...state.y.ids], begun)
    m.look = null
  }
  const farthest = () => {       // the token that looks most, and far: shown first
    const heads = state.weights[state.kind][state.layer] || []   // none: it is off
    const far = i => Math.max(...range(heads[0][i].length - 1).map(j =>
      Math.abs(i - j) * heads.reduce((sum, W) => sum + W[i][j] ** 2, 0)))
    const looking = heads.length ? range(heads[0].length - 1) : []
    const at = looking.sort((i, j) => far(j) - far(i))[0] || 0
    Object.assign(state, {side: 0, at}, state.kind != 'encoder' && {step: at})
  }
  const piece = id => id == m.eos ? 'end' : id == m.bos ? 'begin' : shown(m.pieces[id])
  const marked = (text, right) => {
    const [before, differs, after] = differing(text, right)
    return [before, differs ? make('mark', {}, differs) : '', after]
  }
  const drawAnswer = () => {
    const {src, written, right, ms, n, says, y} = state
    show(y, says)
    const wrong = right !== null && written != right
    at('source').replaceChildren(...src.slice(0, -1).map(id =>
      make('span', {class: 'tl-token'}, piece(id))))
    at('text').replaceChildren(...marked(written || '(nothing)', right))
    at('verdict').replaceChildren(
      right === null ? '' : wrong ? make('span', {class: 'tl-wrong'}, 'wrong')
        : '✓ right', right === null ? '' : wrong ? `, it should be ${right}` : '',
      n === null ? '' : ` (${n.toLocaleString('en')})`,
      right === null ? '' : ' · ',
      `${src.length - 1} tokens in, ${state.ids.length - 1} out, `
      + `${Math.max(1, Math.round(ms))} ms`)
    const parts = n !== null && data.target == 'de' ? germanParts(data.names.de, n) : []
    at('gloss').replaceChildren(...parts.length > 1 ? ['German builds it of ', ...parts.flatMap(
      ([part, gloss]) => [make('ruby', {lang: 'de'}, part, make('rt', {}, `${gloss}`)), ' '])] : [])
  }
  const drawSteps = () => {
    const {ids, step, y, steps} = state
    const [before, slide, after] = at('scrub').children
    slide.max = ids.length - 1; slide.value = step
    slide.setAttribute('aria-valuetext', `step ${step + 1}: ${piece(ids[step])}`)
    before.disabled = step == 0; after.disabled = step == ids.length - 1
    at('at').textContent = `step ${step + 1} of ${ids.length}`
    at('written').replaceChildren(...ids.map((id, i) => make('button', {type: 'button',
      class: `tl-token${i > step ? ' tl-later' : ''}`, 'aria-pressed': `${i == step}`,
      'aria-label': `step ${i + 1}: ${piece(id)}`, onclick: () => go(i)}, piece(id))))
    const p = y.trail[step], top = [...p.keys()].sort((i, j) => p[j] - p[i]).slice(0, 5)
    at('bars').replaceChildren(make('div', {class: 'tl-side'}, 'next token'),
      ...top.map(id => make('div', {
        class: id == ids[step] ? 'tl-bar tl-taken' : 'tl-bar'},
      make('span', {}, piece(id)),
        make('i', {style: `width: ${100 * Math.exp(p[id])}%`}),
        make('span', {}, percent(Math.exp(p[id]))))))
    const live = steps[step] || []
    at('beam').replaceChildren(make('div', {class: 'tl-side'}, live.length
      ? `alive after this step (log-probability)` : 'no hypothesis can win any more'),
      make('ol', {}, live.map(({ids, logProb}) => make('li', {},
        detokenise(m, ids.slice(1)) || '␣', ` (${logProb.toFixed(2)})`))))
  }
  const go = step => {
    state.step = Math.max(0, Math.min(step, state.ids.length - 1))
    if (state.kind != 'encoder') Object.assign(state, {side: 0, at: state.step})
    draw()
  }
  const titles = {encoder: ['queries', 'keys'], decoder: ['being written', 'read'],
                  memory: ['being written', 'source']}
  const sides = () => {                            // tokens that look, and looked at
    const source = state.src.map(piece), written = state.ids.map(piece)
    return {encoder: [source, source], memory: [written, source],
            decoder: [written, ['begin', ...written.slice(0, -1)]]}[state.kind]
  }
  const theHeads = () => state.head == 'all' ? range(m.h) : [+state.head]
  const weight = (head, i, j) => {                 // a head that is off does not look
    const {kind, layer} = state, all = state.weights[kind][layer]
    return all && !m.off.has(`${kind} ${layer} ${head}`) ? all[head][i][j] : 0
  }
  const looksAt = (side, at, i) => {               // the mean of the heads
    const heads = theHeads(), [row, column] = side ? [i, at] : [at, i]
    const sum = heads.reduce((sum, head) => sum + weight(head, row, column), 0)
    return sum / heads.length
  }
  const rows = 26                                  // pixels from one token to the next
  const linesOf = (left, right) => {
    const height = rows * Math.max(left.length, right.length), heads = theHeads()
    const svg = make('svg', {viewBox: `0 0 100 ${height}`, height,
                             preserveAspectRatio: 'none', 'aria-hidden': 'true'})
    const width = Math.min(6, 16 / heads.length)
    const draw = (i, j, head, n) => {
      const w = weight(head, i, j), chosen = (state.side ? j : i) == state.at
      const shift = width * (n - (heads.length - 1) / 2)
      if (w >= (chosen ? .02 : .15)) svg[chosen ? 'append' : 'prepend'](make('line', {
        x1: 1, y1: rows * (i + .5) + shift, x2: 99, y2: rows * (j + .5) + shift,
        stroke: data.colours[head % data.colours.length],
        'stroke-opacity': chosen ? 1 : .16, 'stroke-width': Math.max(.5, width * w),
        'vector-effect': 'non-scaling-stroke'}))
    }
    left.forEach((_, i) => right.forEach((_, j) =>
      heads.forEach((head, n) => draw(i, j, head, n))))
    return svg
  }
  const choose = (side, i) => {
    Object.assign(state, {side, at: i})
    if (!side && state.kind != 'encoder') state.step = i
    draw()
  }
  const drawLines = () => {
    const both = sides(), {kind, side} = state, focus = document.activeElement
    state.at = Math.min(state.at, both[side].length - 1)
    const others = both[1 - side].map((_, i) => looksAt(side, state.at, i))
    const token = (s, i) => make('button', {type: 'button', class: 'tl-token',
      'aria-pressed': `${s == side && i == state.at}`, 'data-key': `${s} ${i}`,
      'aria-label': `${both[s][i]}, ${titles[kind][s]}, number ${i + 1}`,
      onclick: () => choose(s, i)}, both[s][i])
    const number = (s, i) => make('small', {}, s == side || others[i] < .01 ? ''
      : percent(others[i]))
    const column = s => make('div', {class: kind == 'decoder' || kind == 'memory' && !s
      ? 'tl-target' : ''}, make('div', {class: 'tl-side'}, titles[kind][s]),
    both[s].map((_, i) => make('div', {class: s ? 'tl-row tl-right' : 'tl-row'},
      ...(s ? [token(s, i), number(s, i)] : [number(s, i), token(s, i)]))))
    const key = focus && view.contains(focus) && focus.dataset.key
    at('lines').replaceChildren(column(0), make('div', {},
      make('div', {class: 'tl-side'}), linesOf(...both)), column(1))
    if (key) at('lines').querySelector(`[data-key="${key}"]`)?.focus()
    const seen = [...others.keys()].filter(i => others[i] >= .01)
      .sort((i, j) => others[j] - others[i]).slice(0, 3)
      .map(i => `${both[1 - side][i]} ${percent(others[i])}`).join(', ')
    at('looks').textContent = state.weights[kind][state.layer]
      ? `“${both[side][state.at]}” ${side ? 'is attended to by' : 'attends to'}: `
        + `${seen || 'nothing'}${seen && theHeads().length > 1 ? ' (mean of its heads)'
          : ''}.` : 'This layer is skipped, so it has no attention weights.'
  }
  const select = (label, options, key) => make('label', {}, `${label} `, make('select',
    {'data-state': key, autocomplete: 'off', onchange: e => {
      state[key] = e.target.value
      Object.assign(state, {side: 0, at: state.kind == 'encoder' ? 0 : state.step})
      draw()
    }}, Object.entries(options).map(([value, text]) =>
      make('option', {value}, text))))
  const count = n => Object.fromEntries(range(n).map(i => [i, i]))
  const buildMenus = () => at('choose').append(
    select('attention', {memory: 'cross-attention', encoder: 'encoder, self-attention',
      decoder: 'decoder, self-attention'}, 'kind'),
    select('layer', count(m.N), 'layer'),
    select('head', {...count(m.h), all: 'all'}, 'head'))
  const colourOf = (v, size) => [...(v > 0 ? [230, 126, 14] : [31, 119, 180]),
    Math.min(255, 120 * Math.abs(v) / size)]
  const drawStations = () => at('stations').replaceChildren(...state.stations.map(
    ([title, X]) => {
      const canvas = make('canvas', {width: m.d_model, height: X.length, role: 'img',
        'aria-label': `${title}: ${X.length} rows of ${m.d_model} numbers`})
      const pen = canvas.getContext('2d')
      const picture = pen.createImageData(m.d_model, X.length)
      const size = Math.sqrt(X.reduce((a, x) => a + dot(x, x) / x.length, 0) / X.length)
      X.forEach((x, t) => x.forEach((v, i) =>
        picture.data.set(colourOf(v, size), 4 * (t * m.d_model + i))))
      pen.putImageData(picture, 0, 0)
      return make('figure', {}, make('figcaption', {}, title), canvas)
    }))
  const draw = guard(() => {
    for (const e of at('choose').querySelectorAll('select')) e.value =
      state[e.dataset.state]
    drawLines()
    if (!data.small) { drawSteps(); drawStations(); drawScore() }
  })
  const all = data.tests.length, what = data.names ? 'numbers' : 'sentences'
  const usual = () => !m.off.size && state.beam == 4 && state.alpha == .6
  const drawScore = () => {
    const {y, written, right, score} = state, words = n => `${n} of ${all} right`
    const row = (label, ...content) =>
      make('div', {}, make('span', {}, label), make('span', {}, ...content))
    const now = usual() ? words(data.whole) : score.done == all ? words(score.right)
      : `${score.right} of ${score.done} right so far`
    at('score').replaceChildren(
      row('all of it', make('b', {}, words(data.whole)), ' (never trained on)'),
      row('as it is now', make('b', {}, now), ' ',
        usual() || score.done == all ? ''
          : make('progress', {value: score.done, max: all, 'aria-label': 'tested'}),
      ...(y ? [make('span', {class: 'tl-answer'}, make('br'),
        ...marked(written, right))] : [])))
  }
  let halt = () => {}
  const examine = () => {
    halt()
    const {beam, alpha} = state, score = state.score = {done: 0, right: 0}
    if (data.small) return
    drawScore()
    if (usual()) return
    const work = function* () {
      for (const [source, target] of data.tests) {
        const src = [...tokenise(m, source), m.eos]
        const [best] = yield* beamSearch(m, src, beam, alpha)
        score.right += detokenise(m, best.ids) == target
        score.done++
        drawScore()
        yield
      }
    }
    const later = setTimeout(() => { halt = inSlices(guard, work(), drawScore) }, 150)
    halt = () => clearTimeout(later)
  }
  const change = guard(() => {                     // the answer first
    for (const e of view.querySelectorAll('[data-off]'))
      e.checked = !m.off.has(e.dataset.off)
    ask(); examine()
  })
  const box = (off, label, colour = false, hidden = '') => {
    const known = off in data.effects, lost = known ? data.whole - data.effects[off] : 0
    return make('label', {class: 'tl-switch', title: known
      ? `without it ${data.effects[off]} of ${all} are right` : false},
    make('input', {type: 'checkbox', checked: true, 'data-off': off,
      autocomplete: 'off', style: colour && `accent-color: ${colour}`, onchange: e => {
        m.off[e.target.checked ? 'delete' : 'add'](off)
        change(); tell(null)
      }}), make('span', {}, hidden && make('span', {class: 'tl-heard'}, hidden), label),
    lost ? make('small', {}, lost > 0 ? `−${lost}` : `+${-lost}`) : '')
  }
  const rowOf = (...content) => make('div', {class: 'tl-group'}, ...content)
  const slide = (label, key, max, step) => {
    const value = make('output', {}, state[key])
    return make('label', {class: 'tl-slide'}, label, make('input', {type: 'range',
      min: key == 'beam' ? 1 : 0, max, step, value: state[key], autocomplete: 'off',
      'data-slide': key, oninput: e => {
        state[key] = +e.target.value; value.textContent = state[key]; change()
      }}), value)
  }
  const setOff = off => { m.off.clear(); off.forEach(name => m.off.add(name)) }
  const restore = () => {
    for (const e of view.querySelectorAll('[data-slide]')) {
      state[e.dataset.slide] = +(e.value = {beam: 4, alpha: .6}[e.dataset.slide])
      e.nextSibling.textContent = e.value
    }
    setOff([]); change(); tell(null)
  }
  const kinds = {
    encoder: ['Encoder: heads of self-attention',
      'a token of the source gathers from the others'],
    decoder: ['Decoder: heads of self-attention',
      'a token of the translation gathers from those before it'],
    memory: ['Decoder: heads of cross-attention',
      'a token of the translation gathers from the source']}
  const few = {positions: 'positions', mask: 'causal mask', scale: 'division by √d_k'}
  const hints = {positions: 'tell a token its place', scale: 'keeps scores small',
    mask: 'hides later tokens from earlier ones; off: all are read anew at each step'}
  const buildSwitches = () => at('switches').append(
    make('p', {class: 'tl-hint'}, 'Untick what is to be switched off. −5: without it, '
      + `5 of the ${all} ${what} are lost. A head is one of the ${m.h} ways in which a `
      + 'layer attends to other tokens.'),
    ...Object.keys(few).map(off => rowOf(box(off, few[off]),
      make('small', {class: 'tl-hint'}, hints[off]))),
    ...Object.entries(kinds).map(([kind, [title, hint]]) => make('fieldset', {},
      make('legend', {}, title), make('small', {class: 'tl-hint'}, hint),
      ...range(m.N).map(layer => rowOf(make('span', {}, `layer ${layer}`),
        range(m.h).map(i => box(`${kind} ${layer} ${i}`, i, data.colours[
          i % data.colours.length], `${title}, layer ${layer}, head `)),
        kind == 'memory' ? '' : box(`${kind} ${layer}`, 'whole layer', null,
          `${kind} layer ${layer}, `))))),
    make('fieldset', {}, make('legend', {}, 'Search'), rowOf(
      slide('beam: hypotheses kept', 'beam', 8, 1),
      slide('α: favours long ones', 'alpha', 2, .1))))
  const tell = chosen => {
    at('story').replaceChildren(chosen ? `${chosen.text} ` : '', ...chosen && state.own
      ? [make('button', {type: 'button', onclick: () => {
        Object.assign(state, {own: false, fresh: true}); field.value = chosen.source; ask(); tell(chosen)
      }}, `Try “${chosen.source}”`)] : [])
    for (const e of at('experiments').children) e.setAttribute('aria-pressed',
      `${Boolean(chosen) && e.textContent == chosen.title}`)
  }
  const buildExperiments = () => at('experiments').append(...data.experiments.map(
    chosen => make('button', {type: 'button', 'aria-pressed': 'false', onclick: () => {
      if (!state.own) field.value = chosen.source
      setOff(chosen.off); Object.assign(state, chosen.look, {fresh: true})
      change(); tell(chosen)
    }}, chosen.title)), make('button', {type: 'button', onclick: restore},
    'Everything on'))
  const another = () => {
    const digits = 2 + Math.floor(5 * Math.random()), old = field.value
    const n = Math.floor(10 ** (digits - 1) * (1 + 9 * Math.random()))
    field.value = data.draws ? data.draws[Math.floor(Math.random() * data.draws.length)]
      : namers(data.names)[data.source](n)
    Object.assign(state, {own: false, fresh: true})
    if (field.value == old && data.draws?.length != 1) another(); else ask()
  }
  let wait
  const typed = () => {
    clearTimeout(wait)
    Object.assign(state, {own: Boolean(field.value.trim()), fresh: true})
    wait = setTimeout(ask, 120)
  }
  at('about').textContent = data.about
  at('prompt').textContent = data.prompt
  at('draw').addEventListener('click', another)
  field.addEventListener('input', typed)
  const [before, slider, after] = at('scrub').children
  before.addEventListener('click', () => go(state.step - 1))
  after.addEventListener('click', () => go(state.step + 1))
  slider.addEventListener('input', () => go(+slider.value))
  if (data.small) at('few').append(`Switch off (and lose, of ${all} ${what}):`,
    ...Object.entries(few).map(([off, label]) => box(off, label)),
    ...range(m.N).map(i => box(`encoder ${i}`, `encoder layer ${i}`)))
  else { buildSwitches(); buildExperiments(); buildMenus() }
  field.value = data.first
  Object.assign(state, data.look, {fresh: true})
  ask()
}
for (const view of document.querySelectorAll('.transformer-live:not([data-ready])')) {
  view.dataset.ready = 'yes'                       // views do not know of each other
  const [data, base64] = view.querySelectorAll('script')
  const about = JSON.parse(data.textContent)
  setTimeout(() => start(view, about, base64.textContent))     // the page shows first
}
