import { type ApiError, badRequest, notFound } from '../../errors.ts'
import { type Actor, requireOn } from '../root-keys/authorize.ts'
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

const namespaceNotFound = (by: NamespaceName): ApiError =>
  notFound(`namespace ${'id' in by ? by.id : by.name}`)

/**
 * The permission may name the namespace, so it is asked once the namespace is known, or known not to be there: who lacks it
 * learns neither.
 * @throws ApiError INSUFFICIENT_PERMISSIONS, NOT_FOUND
 */
export function requireNamespace<N extends { id: string }>(
  actor: Actor,
  {
    found,
    by,
    action,
  }: {
    found: N | null
    by: NamespaceName
    action: 'set_override' | 'read_override' | 'delete_override'
  },
): N {
  requireOn(actor, { resource: 'ratelimit', action }, found?.id ?? ('id' in by ? by.id : null))
  if (found === null) throw namespaceNotFound(by)
  return found
}
