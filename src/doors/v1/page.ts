import { PAGE_ITEMS_DEFAULT, type Page } from '../../lib/page.ts'

/** What of a list a query asks for. */
export const pageOf = ({
  limit = PAGE_ITEMS_DEFAULT,
  cursor = '',
}: {
  limit?: number
  cursor?: string
}): Page => ({ limit, cursor })
