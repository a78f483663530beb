/**
 * The beginning of a text, at most `unitsMax` UTF-16 units. Never ends in half a surrogate pair, which Postgres cannot
 * store.
 */
export function cutText(text: string, unitsMax: number): string {
  const cut = text.slice(0, unitsMax)
  return cut.isWellFormed() ? cut : cut.slice(0, -1)
}

/** A caller's text or name for a message, cut so that a large body is not sent back as a whole. */
export const shown = (text: string): string =>
  text.length <= SHOWN_CHARACTERS_MAX ? text : `${cutText(text, SHOWN_CHARACTERS_MAX)}…`
const SHOWN_CHARACTERS_MAX = 512
