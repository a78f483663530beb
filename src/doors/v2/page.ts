import { type TSchema, Type } from '@sinclair/typebox'
import { PAGE_ITEMS_DEFAULT, type Page } from '../../lib/page.ts'

/** `limit` and `cursor` of every paged list. @param cursorMax Longest cursor, in characters. */
export const PageFields = {
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 100, description: 'Items per page; default 100.' }),
  ),
  cursor: Type.Optional(
    Type.String({ maxLength: 1024, description: '`pagination.cursor` of the previous page.' }),
  ),
}

/** `search` of lists that have it. */
export const SearchField = {
  search: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Only items with this text in one of their searched fields, in any letter case.',
    }),
  ),
}

/** A page of a list, as the run function of an endpoint returns it. */
export class Listed<T> {
  readonly pagination: { hasMore: boolean; cursor?: string }
  /** @param page What `cutPage` returns: `cursor` only when more items follow. */
  constructor(
    readonly data: readonly T[],
    { cursor }: { cursor?: string },
  ) {
    this.pagination = cursor === undefined ? { hasMore: false } : { hasMore: true, cursor }
  }
}

/** The schema of a {@link Listed}. */
export const listOf = <T extends TSchema>(item: T) =>
  Type.Object({
    data: Type.Array(item, { description: 'One page of the list, oldest first.' }),
    pagination: Type.Object(
      {
        hasMore: Type.Boolean({ description: 'True when more items follow this page.' }),
        cursor: Type.Optional(
          Type.String({
            description: 'Send this as `cursor` to get the next page. Absent on the last page.',
          }),
        ),
      },
      { description: 'Whether and where the list goes on.' },
    ),
  })

/** The page that a body asks for, with defaults. */
export const pageOf = ({
  limit = PAGE_ITEMS_DEFAULT,
  cursor = '',
}: {
  limit?: number
  cursor?: string
}): Page => ({ limit, cursor })
