import type { NamespaceName } from '../../../api/ratelimits/store.ts'
import { badRequest } from '../../../errors.ts'

/**
 * The namespace that a request names. The id wins; an empty text counts as absent.
 * @throws ApiError BAD_REQUEST when neither field is given.
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
