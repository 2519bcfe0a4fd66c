const largest = (p, k, may) => {                   // indices of the k largest, in order
  const best = []
  for (let i = 0; i < p.length; i++) {
    if (!may(i) || best.length == k && !(p[i] > p[best[k - 1]])) continue
    let at = Math.min(best.length, k - 1)
    for (; at && p[i] > p[best[at - 1]]; at--) best[at] = best[at - 1]
    best[at] = i
  }
  return best
}
const beamSearch = function* (m, src, beam = 4, alpha = .6, extra = 50) {     // §6.1
  const limit = Math.min(src.length + extra, m.longest || Infinity)
  const penalty = length => ((5 + length) / 6) ** alpha
  const found = []
  let live = [{ids: [m.bos], logProb: 0, state: begin(m, src), trail: []}]
  for (let t = 1; ; t++) {                         // t tokens so far, <s> among them
    const total = []
    for (const y of live) {
      const [logits, state] = decode(m, y.ids, y.state)
      const p = logSoftmax(logits[logits.length - 1])
      const may = token => t < limit ? token != m.bos && token != m.pad : token == m.eos
      for (const token of largest(p, 2 * beam, may))
        total.push({y, token, state, p, logProb: y.logProb + p[token]})
      yield
    }
    const best = total.sort((a, b) => b.logProb - a.logProb).slice(0, 2 * beam)
    for (const {y, token, p, logProb} of best.slice(0, beam)) if (token == m.eos)
      found.push({ids: y.ids.slice(1), logProb, trail: [...y.trail, p], ended: t,
                  score: logProb / penalty(t)})
    live = best.filter(({token}) => token != m.eos).slice(0, beam)
      .map(({y, token, state, p, logProb}) =>
        ({ids: [...y.ids, token], logProb, state, trail: [...y.trail, p]}))
    found.sort((a, b) => b.score - a.score)
    const hopeless = found.length && live.length
      && live[0].logProb / penalty(limit) <= found[0].score
    if (!live.length || found.length && beam == 1 || hopeless) return found
    yield live
  }
}
