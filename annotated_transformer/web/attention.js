const everywhere = () => true                      // a mask that hides nothing
const attention = (Q, K, V, mask, root) => {       // softmax(QKᵀ/√d_k)V, Equation 1
  const weights = Q.map((q, i) => softmax(
    K.map((k, j) => mask(i, j) ? dot(q, k) / root : -Infinity)))
  const output = weights.map(w => {                // Σⱼ wⱼ Vⱼ
    const y = new Float32Array(V[0].length)
    for (let j = 0; j < w.length; j++)
      for (let d = 0; d < y.length; d++) y[d] += w[j] * V[j][d]
    return y
  })
  return [output, weights]
}
const part = (X, i, h) =>                          // what of each vector is head i's
  X.map(x => x.subarray(i * x.length / h, (i + 1) * x.length / h))
const nameOf = (kind, layer) => kind == 'memory' ? `decoder.layers.${layer}.cross_attn`
  : `${kind}.layers.${layer}.self_attn`
const project = (m, kind, layer, X) => ['W_K', 'W_V'].map(
  W => matmul(X, m.W[`${nameOf(kind, layer)}.${W}.weight`]))
const multiHead = (m, kind, layer, X, [K, V], mask) => {
  const name = nameOf(kind, layer), Q = matmul(X, m.W[`${name}.W_Q.weight`])
  const root = m.off.has('scale') ? 1 : Math.sqrt(m.d_k)
  const heads = range(m.h).map(i =>
    attention(part(Q, i, m.h), part(K, i, m.h), part(V, i, m.h), mask, root))
  if (m.look) m.look(kind, layer, heads.map(([, weights]) => weights))
  const joined = X.map((_, t) => {                 // Concat(head_1, …, head_h)
    const y = new Float32Array(m.h * m.d_v)
    heads.forEach(([output], i) => {
      if (!m.off.has(`${kind} ${layer} ${i}`)) y.set(output[t], i * m.d_v)
    })
    return y
  })
  return matmul(joined, m.W[`${name}.W_O.weight`])
}
