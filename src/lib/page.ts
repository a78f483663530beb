/** A page of a list: `limit` items after the one with id `cursor`. An empty cursor is the beginning. */
export type Page = { limit: number; cursor: string }

/** Items in a page when the caller gives no limit. */
export const PAGE_ITEMS_DEFAULT = 100

/**
 * Makes a page from rows by ascending id, read with `limit + 1`.
 * @param options.isCut More rows follow, even though there are no more than `limit`.
 * @returns the items, and the id of the last one as cursor when more follow.
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
