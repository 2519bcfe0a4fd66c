const begin = (m, src) => {                        // read the source, once
  const memory = encode(m, src)
  return {read: 0, kept: range(m.N).map(layer =>
    ({own: [[], []], memory: project(m, 'memory', layer, memory)}))}
}
const decode = (m, tgt, state) => {   // all ids so far → logits of those not yet read
  const first = m.off.has('mask') || m.off.has('cache') ? 0 : state.read
  const mask = m.off.has('mask') ? everywhere : (i, j) => j <= first + i
  let X = embed(m, 'tgt', tgt.slice(first), first)
  const kept = state.kept.map(({own, memory}, layer) => {
    if (m.off.has(`decoder ${layer}`)) return {own, memory}
    const name = `decoder.layers.${layer}`, sub = i => `${name}.add_norm.${i}`
    X = addNorm(m, sub(0), X, Y => {
      const fresh = project(m, 'decoder', layer, Y)
      own = first ? fresh.map((rows, i) => [...own[i], ...rows]) : fresh
      return multiHead(m, 'decoder', layer, Y, own, mask)
    })
    X = addNorm(m, sub(1), X, Y =>
      multiHead(m, 'memory', layer, Y, memory, everywhere))
    X = addNorm(m, sub(2), X, Y => feedForward(m, name, Y))
    return {own, memory}
  })
  const logits = matmul(finalNorm(m, 'decoder', X), m.W['output_projection.weight'])
  return [logits, {read: tgt.length, kept}]
}
