const make = (tag, attributes = {}, ...children) => {
  const svg = ['svg', 'line', 'path'].includes(tag) && 'http://www.w3.org/2000/svg'
  const e = svg ? document.createElementNS(svg, tag) : document.createElement(tag)
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v)
    else if (v === true) e.setAttribute(k, '')
    else if (v !== false && v !== null) e.setAttribute(k, v)
  }
  e.append(...children.flat())
  return e
}
const inSlices = (guard, work, done, budget = 20) => {   // a generator, until stopped
  let stopped = false
  const go = guard(() => {
    const until = performance.now() + budget
    while (!stopped) {
      const {value, done: end} = work.next()
      if (end) return done(value)
      if (performance.now() > until) return setTimeout(go)
    }
  })
  go()
  return () => { stopped = true }
}
