/** A page of a list: `limit` items after the one with id `cursor`. An empty cursor is the beginning. */
export type Page = { limit: number; cursor: string }

/** A page ends with the item that takes it past this: about 4 ms of a thread. */
export const PAGE_BYTES_MAX = 500_000

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

/**
 * Makes a page from the rows of a page of ids.
 * @param next Where the page of ids ends, when more follow.
 * @param options.isCut The page ends with the last of the rows because of its length.
 */
export function endPage<T extends { id: string }>(
  items: T[],
  next: string | null,
  { isCut }: { isCut: boolean },
): { items: T[]; cursor?: string } {
  const cursor = isCut ? (items.at(-1)?.id ?? next) : next
  return cursor === null ? { items } : { items, cursor }
}
