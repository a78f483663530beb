/** Characters to add, leave out or replace to make one text of the other. */
export function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (const [index, character] of [...from].entries()) {
    const next = [index + 1]
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] ?? 0) + (character === to[column - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[to.length] ?? 0
}

/** What was probably meant: the nearest of the known words, if a third of it at most is written otherwise; else null. */
export function nearestWord(word: string, known: readonly string[]): string | null {
  let best: { word: string; distance: number } | null = null
  for (const each of known) {
    const distance = editDistance(word, each)
    if (distance > Math.max(1, Math.floor(each.length / 3))) continue
    if (best === null || distance < best.distance) best = { word: each, distance }
  }
  return best?.word ?? null
}
