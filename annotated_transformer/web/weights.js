const unpack = (tensors, base64) => {              // → name: vector or matrix
  const text = atob(base64.trim()), data = new DataView(new ArrayBuffer(text.length))
  for (let i = 0; i < text.length; i++) data.setUint8(i, text.charCodeAt(i))
  let at = 0
  const next = {32: () => data.getFloat32((at += 4) - 4, true),
                16: () => data.getInt16((at += 2) - 2, true),
                8: () => data.getInt8(at++)}
  const W = {}
  for (const [name, bits, size, rows] of tensors) {
    const matrix = range(rows || 1).map(() => {
      const factor = bits == 32 ? 1 : next[32](), row = new Float32Array(size)
      for (let i = 0; i < size; i++) row[i] = factor * next[bits]()
      return row
    })
    W[name] = rows ? matrix : matrix[0]
  }
  return W
}
const load = (data, base64) => {                   // the model, nothing switched off
  const W = unpack(data.tensors, base64)
  for (const [name, same] of Object.entries(data.tied)) W[name] = W[same]
  const pieces = [...data.pieces.entries()]
  return {...data.model, W, off: new Set(), pieces: data.pieces,
          ids: new Map(pieces.map(([i, piece]) => [piece, i])),
          scores: new Map(pieces.filter(([i]) => data.scores[i] !== null)
            .map(([i, piece]) => [piece, data.scores[i]]))}
}
