/** What of a list is asked for: items after the one whose id is `cursor`, the empty text being the beginning. */
export type Page = { limit: number; cursor: string }

/** Items to a page when the caller does not say. */
export const PAGE_ITEMS_DEFAULT = 100

/**
 * A page out of rows read with one more than `limit`, by id ascending.
 * @param options.isCut More follow, though there are not more rows than `limit`.
 * @returns the items, and as cursor the id of the last one only when more follow.
 */
export function cutPage<T extends { id: string }>(
  rows: readonly T[],
  limit: number,
  { isCut = false } = {},
): { items: T[]; cursor?: string } {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return (isCut || rows.length > limit) && last !== undefined ? { items, cursor: last.id } : { items }
}
