const tokenise = (m, text) => {
  const parts = text ? [...('▁' + text).replaceAll(' ', '▁')] : []
  for (;;) {
    let at = -1, most = -Infinity
    for (let i = 0; i + 1 < parts.length; i++) {
      const score = m.scores.get(parts[i] + parts[i + 1])
      if (score > most) { at = i; most = score }
    }
    if (at < 0) break
    parts.splice(at, 2, parts[at] + parts[at + 1])
  }
  const ids = []
  for (const piece of parts) {
    const bytes = [...new TextEncoder().encode(piece)].map(b => m.ids.get(byteName(b)))
    if (m.scores.has(piece)) ids.push(m.ids.get(piece))
    else if (bytes[0] !== undefined) ids.push(...bytes)
    else if (ids[ids.length - 1] !== m.unk) ids.push(m.unk)
  }
  return ids
}
const byteName = b => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`
const detokenise = (m, ids) => {
  const bytes = [], write = text => bytes.push(...new TextEncoder().encode(text))
  let first = true
  for (const id of ids) {
    const piece = m.pieces[id], byte = /^<0x(..)>$/.exec(piece)
    if (id == m.unk) write(' ⁇ ')
    else if (m.scores.has(piece)) {
      const text = piece.replaceAll('▁', ' ')
      write(first ? text.replace(/^ /, '') : text)
    } else if (byte) bytes.push(parseInt(byte[1], 16))
    first = false
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}
