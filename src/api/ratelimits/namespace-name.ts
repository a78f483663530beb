import { type ApiError, notFound } from '../../errors.ts'
import { type Actor, requireOn } from '../root-keys/authorize.ts'
import type { NamespaceName } from './store.ts'

export const namespaceNotFound = (by: NamespaceName): ApiError =>
  notFound('namespace', 'id' in by ? by.id : 'name' in by ? by.name : by.idOrName)

/**
 * Checks the right on a namespace, then its existence: a caller without the right must not learn whether it exists. The
 * right may name the namespace's id, so the look-up comes first. Named by `idOrName`, the existence is checked first: that is
 * how the v2 API answers.
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
  if (found === null && 'idOrName' in by) throw namespaceNotFound(by)
  requireOn(actor, { resource: 'ratelimit', action }, found?.id ?? ('id' in by ? by.id : null))
  if (found === null) throw namespaceNotFound(by)
  return found
}
