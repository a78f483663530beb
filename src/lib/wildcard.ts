/**
 * A compiled pattern: `*` matches any run of characters, also an empty one; other characters match themselves, by case. A
 * text matches when it begins with `prefix`, ends with `suffix`, and contains the pieces in this order in between.
 */
export type Wildcard = { prefix: string; suffix: string; pieces: readonly Piece[] }

/** Text between two stars, with the Knuth-Morris-Pratt table: where to continue after a mismatch. */
type Piece = { text: string; fallbacks: Uint16Array }

/** @param pattern With at least one `*`; at most 65 536 characters. */
export function compileWildcard(pattern: string): Wildcard {
  const [prefix = '', ...rest] = pattern.split('*')
  const suffix = rest.pop() ?? ''
  return { prefix, suffix, pieces: rest.filter((text) => text !== '').map(compilePiece) }
}

/** Takes linear time in text and pattern: each piece is searched once, from the end of the one before. */
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

/** @returns the end of a piece's first occurrence within a part of the text, or -1. */
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

/** For each prefix of the piece: the length of its longest suffix that is also a prefix. */
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
