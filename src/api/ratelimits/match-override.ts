import { notFound } from '../../errors.ts'
import { holdsPermissions } from '../../verify/permission-query.ts'
import type { Services } from '../parts.ts'
import { type Actor, anyOf } from '../root-keys/authorize.ts'
import type { Override } from './overrides.ts'

/**
 * The override that a limit of this identifier would get: the exact one, else the pattern that matches. A caller without the
 * right to read it gets the same answer as for an identifier without an override.
 * @param idOrName Of the namespace.
 * @throws ApiError NOT_FOUND
 */
export async function matchOverride(
  { namespaces }: Pick<Services, 'namespaces'>,
  actor: Actor,
  idOrName: string,
  identifier: string,
): Promise<Override> {
  const namespace = await namespaces.findByIdOrName(actor.workspaceId, idOrName)
  if (namespace === null) throw notFound('namespace', idOrName)
  const override = namespace.overrides.find(identifier)
  const mayRead = anyOf('*', 'ratelimit.*.read_override', `ratelimit.${namespace.id}.read_override`)
  if (override === null || !holdsPermissions(actor.permissions, mayRead))
    throw notFound('override', identifier)
  return override
}
