import type { NamespaceName } from '../../../api/ratelimits/store.ts'
import { badRequest } from '../../../errors.ts'

/**
 * A namespace as a request names it: the id wins, and an empty text is none.
 * @throws ApiError BAD_REQUEST when neither is given.
 */
export function readNamespaceName({
  namespaceId = '',
  namespaceName = '',
}: {
  namespaceId?: string
  namespaceName?: string
}): NamespaceName {
  if (namespaceId !== '') return { id: namespaceId }
  if (namespaceName !== '') return { name: namespaceName }
  throw badRequest('either namespaceId or namespaceName is required')
}
