document.querySelectorAll('.attention-view:not([data-ready])').forEach(view => {
  view.dataset.ready = 'yes'       // views on one page do not know of each other
  const data = JSON.parse(view.querySelector('script').textContent)
  const svg = view.querySelector('svg'), says = view.querySelector('p')
  const [kind, layer, head] = view.querySelectorAll('select')
  const make = (parent, name, attributes, text = '') => {
    const e = document.createElementNS(svg.namespaceURI, name)
    for (const k in attributes) e.setAttribute(k, attributes[k])
    e.textContent = text
    return parent.appendChild(e)
  }
  let chosen                       // side, position: shown while nothing is pointed at
  const draw = () => {
    const {sides, weights} = data.kinds[kind.value], W = weights[layer.value]
    const heads = head.value == 'all' ? [...W.keys()] : [+head.value]
    const weight = (k, side, at, i) => side ? W[k][i][at] : W[k][at][i]
    const verbs = ['attends to', 'is attended to by']
    const y = i => 24 * i + 16, bottom = y(Math.max(...sides.map(s => s.length))) + 4
    const width = Math.min(6, 18 / heads.length)                // heads side by side
    const shift = n => width * (n - (heads.length - 1) / 2)
    const colour = n => data.colours[heads[n] % data.colours.length]
    svg.replaceChildren()
    svg.setAttribute('viewBox', `0 0 600 ${bottom + 12}`)
    const lines = make(svg, 'g', {})
    const pieces = sides.map((column, side) => column.map((piece, i) => {
      const all = make(svg, 'g', {tabindex: 0, role: 'button', 'aria-label':
        `${piece}, ${side ? 'key' : 'query'}, number ${i + 1}`})
      const box = make(all, 'rect', {x: side ? 398 : 55, y: y(i) - 12, width: 147,
        height: 24, rx: 3, fill: '#1f77b4', stroke: 'currentColor'})
      make(all, 'text', {x: side ? 405 : 195, y: y(i) + 5,
        'text-anchor': side ? 'start' : 'end'}, piece)
      const choose = () => { chosen = [side, i]; show(side, i) }
      all.addEventListener('mouseenter', () => show(side, i))
      all.addEventListener('mouseleave', () => show(...chosen))
      all.addEventListener('focus', choose)
      all.addEventListener('click', choose)
      return [box, make(svg, 'text', {x: side ? 598 : 2, y: y(i) + 5,
        'text-anchor': side ? 'end' : 'start'})]
    }))
    const step = Math.min(84, 560 / heads.length)
    heads.forEach((k, n) => {                                   // which colour is which
      const x = 288 + step * (n - (heads.length - 1) / 2)
      make(svg, 'rect', {
        x: x - 16, y: bottom - 3, width: 12, height: 4, fill: colour(n)})
      make(svg, 'text', {x, y: bottom + 4}, step < 66 ? k : `head ${k}`)
    })
    const show = (side, at) => {
      const others = sides[1 - side], means = others.map((_, i) =>
        heads.reduce((sum, k) => sum + weight(k, side, at, i), 0) / heads.length)
      lines.replaceChildren()
      others.forEach((_, i) => heads.forEach((k, n) => make(lines, 'line', {
        x1: 205, y1: y(side ? i : at) + shift(n), stroke: colour(n),
        x2: 395, y2: y(side ? at : i) + shift(n),
        'stroke-width': width * weight(k, side, at, i) / 100})))
      pieces.forEach((column, s) => column.forEach(([box, number], i) => {
        const mean = s == side ? 0 : means[i]
        box.setAttribute('stroke-opacity', s == side && i == at ? 1 : 0)
        box.setAttribute('fill-opacity', .6 * mean / 100)
        number.textContent = mean < 1 ? '' : `${Math.round(mean)} %`
      }))
      const seen = [...means.keys()].filter(i => means[i] >= 1)
        .sort((i, j) => means[j] - means[i]).slice(0, 3)
        .map(i => `${others[i]} ${Math.round(means[i])} %`).join(', ')
      says.textContent = `${sides[side][at]} ${verbs[side]}: ${seen || 'nothing'}`
    }
    show(...chosen)
  }
  const start = () => { chosen = [0, data.kinds[kind.value].first]; draw() }
  kind.addEventListener('change', start)
  for (const choice of [layer, head]) choice.addEventListener('change', draw)
  start()
})
