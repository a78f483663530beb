import { type TSchema, Type } from '@sinclair/typebox'

/** `limit` and `cursor` of every paged list. */
export const PageQuery = {
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 100, description: 'Items a page; default 100.' }),
  ),
  cursor: Type.Optional(Type.String({ maxLength: 256, description: '`cursor` of the page before.' })),
}

/** `total` and `cursor` of every paged reply. */
export const PageReply = {
  total: Type.Integer({ description: 'All items there are, whatever page was asked for.' }),
  cursor: Type.Optional(
    Type.String({ description: 'Send it to get the next page; absent on the last one.' }),
  ),
}

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

/** `null` beside a type, where null clears. */
export const Nullable = <T extends TSchema>(schema: T, description?: string) =>
  Type.Union([schema, Type.Null()], description === undefined ? {} : { description })

/** Changes that have nothing to tell answer with an empty object. */
export const EmptyReply = Type.Object({})
