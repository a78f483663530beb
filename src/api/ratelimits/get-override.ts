import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { readNamespaceName, requireNamespace } from './namespace-name.ts'
import type { GetOverrideQuery, GetOverrideReply } from './schema.ts'
import { findNamespace, findOverrideRow } from './store.ts'

/** The override of exactly this identifier; which one a call would meet is another question. */
export async function getOverride(
  services: Services,
  call: Call,
  query: GetOverrideQuery,
): Promise<GetOverrideReply> {
  const actor = await authenticate(services, call)
  const by = readNamespaceName(query)
  const found = await findNamespace(services.sql, actor.workspaceId, by)
  const namespace = requireNamespace(actor, { found, by, action: 'read_override' })
  const override = await findOverrideRow(services.sql, actor.workspaceId, namespace.id, query.identifier)
  if (override === null) throw notFound(`override ${query.identifier}`)
  const { id, identifier, limit, durationMs, async } = override
  return { id, identifier, limit, duration: durationMs, async }
}
