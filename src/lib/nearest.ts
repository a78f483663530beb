/** Number of characters to add, remove or replace to turn one text into the other. */
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

/** The known word that was probably meant: the nearest one, if at most a third of it differs; otherwise null. */
export function nearestWord(word: string, known: readonly string[]): string | null {
  let best: { word: string; distance: number } | null = null
  for (const each of known) {
    const distance = editDistance(word, each)
    if (distance > Math.max(1, Math.floor(each.length / 3))) continue
    if (best === null || distance < best.distance) best = { word: each, distance }
  }
  return best?.word ?? null
}
