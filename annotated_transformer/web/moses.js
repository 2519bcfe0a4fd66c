const escapes = [['&', '&amp;'], ['|', '&#124;'], ['<', '&lt;'], ['>', '&gt;'],
  ['\'', '&apos;'], ['"', '&quot;'], ['[', '&#91;'], [']', '&#93;']]
const replaceAll = (text, rules) => rules.reduce((t, rule) => t.replace(...rule), text)
const APOSTROPHES = [                              // of English: the dog's, they're
  [/([^\p{Alphabetic}])'([^\p{Alphabetic}])/gu, '$1 \' $2'],
  [/([^\p{Alphabetic}\p{N}])'(\p{Alphabetic})/gu, '$1 \' $2'],
  [/(\p{Alphabetic})'([^\p{Alphabetic}])/gu, '$1 \' $2'],
  [/(\p{Alphabetic})'(\p{Alphabetic})/gu, '$1 \'$2'], [/(\p{N})'(s)/gu, '$1 \'$2']]
const COMMAS = [[/(\P{N}),/gu, '$1 , '], [/,(\P{N})/gu, ' , $1'], [/(\p{N}),$/gu, '$1 , ']]
const splitPeriods = ({prefixes, numeric}, words) => words.map((word, i) => {
  const before = word.slice(0, -1), next = words[i + 1] || ''
  const keeps = !/.\.$/.test(word) || /\./.test(before) && /\p{Alphabetic}/u.test(before)
    || prefixes.includes(before) || /^\p{Lowercase}/u.test(next)
    || numeric.includes(before) && /^[0-9]/.test(next)
  return keeps ? word : `${before} .`
})
const preprocess = (m, text) => {     // as moses_lc does: lower-case, normalise, tokenise
  if (!m.moses) return text
  const rules = m.moses.rules.map(([from, to]) => [new RegExp(from, 'g'), to])
  text = replaceAll(`${text.trim().toLowerCase()}\n`, rules).trim()
  text = replaceAll(text.replace(/\s+/g, ' ').trim(), [
    [/([^\p{Alphabetic}\p{Nd}\s.'`,-])/gu, ' $1 '],
    [/\.{2,}/g, (dots, at, all) =>                 // stand apart, no ends of a sentence
      ` ${'\uE000'.repeat(dots.length)}${at + dots.length < all.length ? ' ' : ''}`],
    ...COMMAS, ...APOSTROPHES])
  text = splitPeriods(m.moses, text.split(/\s+/).filter(Boolean)).join(' ')
  text = text.replace(/\.' ?$/, ' . \' ').replaceAll('\uE000', '.')
  return escapes.reduce((t, [from, to]) => t.replaceAll(from, to), text)
}
const postprocess = (m, text) => {     // tokens as running text; it stays lower-cased
  if (!m.moses) return text
  text = [...escapes].reverse().reduce((t, [from, to]) => t.replaceAll(to, from), text)
  const odd = {}
  let out = '', space = ' '
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const quote = /^[„“”]+$/.test(word) ? '"' : word
    const isQuote = /^['"„“”`]+$/.test(word), closes = isQuote && odd[quote]
    const opens = /^[\p{Sc}([{¿¡]+$/u.test(word) || isQuote && !closes
    if (isQuote) odd[quote] = !closes
    const left = closes || /^[,.?!:;\\%}\])]+$/.test(word)
    out += (left ? '' : space) + word
    space = opens ? '' : ' '
  }
  return out.trim()
}
