const addNorm = (m, name, X, sublayer) => {        // LayerNorm(x + Sublayer(x)), §3.1
  const norm = Y => layerNorm(Y, m.W[`${name}.norm.weight`], m.W[`${name}.norm.bias`])
  return m.norm == 'post' ? norm(add(X, sublayer(X))) : add(X, sublayer(norm(X)))
}
const feedForward = (m, name, X) => {              // max(0, xW_1 + b_1)W_2 + b_2, §3.3
  const [W_1, b_1, W_2, b_2] = ['W_1.weight', 'W_1.bias', 'W_2.weight', 'W_2.bias']
    .map(w => m.W[`${name}.feed_forward.${w}`])
  return matmul(relu(matmul(X, W_1, b_1)), W_2, b_2)
}
const position = (m, side, t) => m.positions == 'learned'     // §3.5
  ? m.W[`${side}_position.table`][t]
  : Float32Array.from({length: m.d_model}, (_, i) => {
    const angle = t / 10000 ** ((i - i % 2) / m.d_model)
    return i % 2 ? Math.cos(angle) : Math.sin(angle)
  })
const embed = (m, side, ids, first = 0) => {       // times √d_model, §3.4, and position
  const E = ids.map(id => m.W[`${side}_embed.weight`][id]
    .map(v => v * Math.sqrt(m.d_model)))
  if (m.see) m.see('embedding', E)
  return m.off.has('positions') ? E
    : add(E, ids.map((_, t) => position(m, side, first + t)))
}
const finalNorm = (m, side, X) => m.norm == 'post' ? X : layerNorm(
  X, m.W[`${side}.final_norm.weight`], m.W[`${side}.final_norm.bias`])
const encode = (m, src) => {                       // ids → memory (T_k, d_model)
  let X = embed(m, 'src', src)
  if (m.see) m.see('with position', X)
  for (const layer of range(m.N)) {
    const name = `encoder.layers.${layer}`
    if (!m.off.has(`encoder ${layer}`)) {
      X = addNorm(m, `${name}.add_norm.0`, X, Y =>
        multiHead(m, 'encoder', layer, Y, project(m, 'encoder', layer, Y), everywhere))
      X = addNorm(m, `${name}.add_norm.1`, X, Y => feedForward(m, name, Y))
    }
    if (m.see) m.see(`encoder layer ${layer}`, X)
  }
  return finalNorm(m, 'encoder', X)
}
