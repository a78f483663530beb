/**
 * Does `pattern` match the whole `text`? `*` stands for any run of characters, also none; everything else is literal
 * and case-sensitive. Linear in the text for each `*`: no backtracking beyond the last one, so no pattern is slow.
 */
export function matchesWildcard(pattern: string, text: string): boolean {
  let p = 0
  let t = 0
  let star = -1
  let resumeAt = 0
  while (t < text.length) {
    if (pattern[p] === '*') {
      star = p++
      resumeAt = t
    } else if (p < pattern.length && pattern[p] === text[t]) {
      p++
      t++
    } else if (star >= 0) {
      p = star + 1
      t = ++resumeAt
    } else {
      return false
    }
  }
  while (pattern[p] === '*') p++
  return p === pattern.length
}
