/** The beginning of a text, at most so many UTF-16 units; never half of a pair, which cannot be stored. */
export function cutText(text: string, unitsMax: number): string {
  const cut = text.slice(0, unitsMax)
  return cut.isWellFormed() ? cut : cut.slice(0, -1)
}
