/** The beginning of a text, at most so many UTF-16 units; never half of a pair, which cannot be stored. */
export function cutText(text: string, unitsMax: number): string {
  const cut = text.slice(0, unitsMax)
  return cut.isWellFormed() ? cut : cut.slice(0, -1)
}

/** A text or a name of the caller's in a message: else a body of nothing but it would go back to them whole. */
export const shown = (text: string): string =>
  text.length <= SHOWN_CHARACTERS_MAX ? text : `${cutText(text, SHOWN_CHARACTERS_MAX)}…`
const SHOWN_CHARACTERS_MAX = 512
