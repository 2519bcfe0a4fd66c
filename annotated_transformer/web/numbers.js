const namers = ({en, de}) => {
  const english = n => n < 100 ? en[n]
    : n < 1000 ? `${en[n / 100 | 0]} hundred${n % 100 ? ` and ${en[n % 100]}` : ''}`
      : `${english(n / 1000 | 0)} thousand${n % 1000 === 0 ? ''
        : (n % 1000 < 100 ? ' and ' : ', ') + english(n % 1000)}`
  const german = (n, one = de[1]) => n == 1 ? one : n < 100 ? de[n]
    : n < 1000 ? german(n / 100 | 0, 'ein') + 'hundert'
        + (n % 100 ? german(n % 100, one) : '')
      : german(n / 1000 | 0, n < 2000 ? 'ein' : de[1]) + 'tausend'
        + (n % 1000 ? german(n % 1000) : '')
  return {en: english, de: german}
}
const germanParts = (de, n) => {                   // 21 → ein 1, und, zwanzig 20
  const small = n => n < 20 || n % 10 == 0 ? [[de[n], n]]
    : [[n % 10 == 1 ? 'ein' : de[n % 10], n % 10], ['und', 'and'], [de[n - n % 10], n - n % 10]]
  const group = n => [...n < 100 ? [] : [[n < 200 ? 'ein' : de[n / 100 | 0], n / 100 | 0],
    ['hundert', 'hundred']], ...n % 100 ? small(n % 100) : []]
  if (n < 1000) return group(n)
  const high = n < 2000 ? [['ein', 1]] : group(n / 1000 | 0)
  return [...high, ['tausend', 'thousand'], ...n % 1000 ? group(n % 1000) : []]
}
const plain = text => text.replace(/,|-|\band\b/g, ' ').replace(/\s+/g, ' ').trim()
const numberOf = (name, text) => {                 // null: no name of a number
  const below = new Map(range(1000).map(n => [plain(name(n)), n]))
  const [first, rest, ...more] = plain(text).split(/ ?\bthousand\b ?/)
  const high = rest === undefined ? 0 : below.get(first)
  const low = rest === '' ? 0 : below.get(rest === undefined ? first : rest)
  return more.length || !(high + low >= 0) ? null : 1000 * high + low
}
const understand = (m, data, typed) => {           // → text, number, what to say of it
  let text = typed.trim().replace(/\s+/g, ' '), n = null
  const says = [], name = data.names && namers(data.names)[data.source]
  const count = text.replace(/(?<=\d)[,. ](?=\d{3}\b)/g, '')
  const digits = name && /\d/.test(count)
  if (!text || digits && !(/^\d{1,6}$/.test(count) && +count)) return {text, n, stop:
    name ? 'Type a whole number from 1 to 999,999.' : 'Type a sentence.'}
  if (digits) { n = +count; text = name(n) }
  const known = c => c == ' ' || m.scores.has(c)
  const strange = t => [...new Set(t)].filter(c => !known(c))
  const small = text.toLowerCase()
  if (strange(text).length > strange(small).length) text = small
  if (name && data.source == 'en' && n === null) n = numberOf(name, text)
  const odd = m.ids.has('<0x00>') ? [] : strange(text)
  if (odd.length) says.push(`The tokenizer does not know ${odd.join(' ')} and reads `
    + '<unk> there.')
  const words = text.match(/[^\s,.-]+/g) || []
  const fresh = data.words.length ? words.filter(w => !data.words.includes(w)) : []
  if (fresh.length) says.push(`It may never have read “${fresh.join('”, “')}”.`)
  if (name && data.source == 'en') {
    if (n === null) says.push('This is not the name of a number; the model tries.')
    else if (name(n) != text) says.push(`Its training text spells it “${name(n)}”.`)
  }
  const tokens = tokenise(m, text).length          // and one more, the end
  const most = Math.min(data.most, (m.longest || Infinity) - 1)
  if (tokens > most) return {text, n, stop:
    `${tokens} tokens are too many for this page: ${most} at most.`}
  return {text, n, says: says.join(' ')}
}
