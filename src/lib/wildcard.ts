/**
 * A pattern taken apart: `*` stands for any run of characters, also none; everything else is literal and case-sensitive.
 * A text matches when it begins with `prefix`, ends with `suffix`, and has the pieces in this order between them.
 */
export type Wildcard = { prefix: string; suffix: string; pieces: readonly Piece[] }

/** Text between two stars, with how far a search for it can go on where it breaks off (Knuth, Morris, Pratt). */
type Piece = { text: string; fallbacks: Uint16Array }

/** @param pattern With at least one `*`; at most 65 536 characters. */
export function compileWildcard(pattern: string): Wildcard {
  const [prefix = '', ...rest] = pattern.split('*')
  const suffix = rest.pop() ?? ''
  return { prefix, suffix, pieces: rest.filter((text) => text !== '').map(compilePiece) }
}

/** Linear in the text and the pattern, whatever they are: each piece is looked for once, from where the one before ended. */
export function matchesWildcard({ prefix, suffix, pieces }: Wildcard, text: string): boolean {
  const until = text.length - suffix.length
  if (prefix.length > until || !text.startsWith(prefix) || !text.endsWith(suffix)) return false
  let from = prefix.length
  for (const piece of pieces) {
    from = endOf(piece, text, from, until)
    if (from < 0) return false
  }
  return true
}

/** @returns where the first occurrence of a piece within a part of the text ends, or -1. */
function endOf({ text: piece, fallbacks }: Piece, text: string, from: number, until: number): number {
  let matched = 0
  for (let at = from; at < until; at++) {
    const code = text.charCodeAt(at)
    while (matched > 0 && piece.charCodeAt(matched) !== code) matched = fallbacks[matched - 1] as number // in range
    if (piece.charCodeAt(matched) === code) matched++
    if (matched === piece.length) return at + 1
  }
  return -1
}

/** For each beginning of the piece: how much of its end is a beginning again. */
function compilePiece(text: string): Piece {
  const fallbacks = new Uint16Array(text.length)
  let matched = 0
  for (let at = 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    while (matched > 0 && text.charCodeAt(matched) !== code) matched = fallbacks[matched - 1] as number // in range
    if (text.charCodeAt(matched) === code) matched++
    fallbacks[at] = matched
  }
  return { text, fallbacks }
}
