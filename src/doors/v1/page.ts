import { type TSchema, Type } from '@sinclair/typebox'
import { PAGE_ITEMS_DEFAULT, type Page } from '../../lib/page.ts'

/** `limit` and `cursor` of every paged list. */
export const PageQuery = {
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 100, description: 'Items per page; default 100.' }),
  ),
  cursor: Type.Optional(Type.String({ maxLength: 256, description: '`cursor` of the previous page.' })),
}

/** `total` and `cursor` of every paged reply. */
export const PageReply = {
  total: Type.Integer({ description: 'Number of items on all pages together.' }),
  cursor: Type.Optional(
    Type.String({ description: 'Send this as `cursor` to get the next page. Absent on the last page.' }),
  ),
}

/** The page that a query asks for, with defaults. */
export const pageOf = ({
  limit = PAGE_ITEMS_DEFAULT,
  cursor = '',
}: {
  limit?: number
  cursor?: string
}): Page => ({ limit, cursor })

/** A type or `null`, where null clears the field. */
export const Nullable = <T extends TSchema>(schema: T, description?: string) =>
  Type.Union([schema, Type.Null()], description === undefined ? {} : { description })

/** The reply of changes that return nothing. */
export const EmptyReply = Type.Object({})

/** In answers from the memory of one server. */
export const AnsweredBy = Type.String({
  description: 'Id of the server whose memory this is. Others on the same database have their own.',
})
