import { type ApiError, badRequest, notFound } from '../errors.ts'
import { type Actor, anyOf, requirePermission } from '../root-keys/authorize.ts'
import type { NamespaceName } from './store.ts'

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

export const namespaceNotFound = (by: NamespaceName): ApiError =>
  notFound(`namespace ${'id' in by ? by.id : by.name}`)

/** The permission may name the namespace, so it is asked once the namespace is known. */
export const requireInNamespace = (
  actor: Actor,
  namespaceId: string,
  action: 'set_override' | 'read_override' | 'delete_override',
): void => requirePermission(actor, anyOf('*', `ratelimit.*.${action}`, `ratelimit.${namespaceId}.${action}`))
