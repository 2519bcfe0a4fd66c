// A vector is a Float32Array, a matrix a list of vectors.
const range = n => [...Array(n).keys()]
const dot = (a, b) => {                            // four sums side by side: faster
  let p = 0, q = 0, r = 0, s = 0, i = 0
  for (; i + 3 < a.length; i += 4) {
    p += a[i] * b[i]; q += a[i + 1] * b[i + 1]
    r += a[i + 2] * b[i + 2]; s += a[i + 3] * b[i + 3]
  }
  for (; i < a.length; i++) p += a[i] * b[i]
  return p + q + r + s
}
const matmul = (X, W, b) => X.map(x => {           // X Wᵀ + b, (T, d) → (T, rows of W)
  const y = new Float32Array(W.length)
  for (let o = 0; o < y.length; o++) y[o] = dot(x, W[o]) + (b ? b[o] : 0)
  return y
})
const add = (X, Y) => X.map((x, t) => x.map((v, i) => v + Y[t][i]))
const relu = X => X.map(x => x.map(v => Math.max(0, v)))
const softmax = scores => {                        // exp(sᵢ) / Σⱼ exp(sⱼ)
  const most = Math.max(...scores), e = scores.map(s => Math.exp(s - most))
  const sum = e.reduce((a, b) => a + b, 0)
  return Float32Array.from(e, v => v / sum)
}
const logSoftmax = scores => {                     // sᵢ − log Σⱼ exp(sⱼ)
  const p = Float64Array.from(scores)
  let most = -Infinity, sum = 0
  for (let i = 0; i < p.length; i++) if (p[i] > most) most = p[i]
  for (let i = 0; i < p.length; i++) sum += Math.exp(p[i] - most)
  const logZ = most + Math.log(sum)
  for (let i = 0; i < p.length; i++) p[i] -= logZ
  return p
}
const layerNorm = (X, gain, bias, eps = 1e-5) => X.map(x => {
  const mean = x.reduce((a, v) => a + v, 0) / x.length
  const variance = x.reduce((a, v) => a + (v - mean) ** 2, 0) / x.length
  return x.map((v, i) => (v - mean) / Math.sqrt(variance + eps) * gain[i] + bias[i])
})
