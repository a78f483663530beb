import { type AuditActor, type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { newId } from '../../lib/ids.ts'
import { holdIdentityIds, insertMissingIdentities } from './store.ts'

/**
 * Finds or creates the identities of these external ids inside the caller's transaction, and locks them against deletion
 * until it ends. One statement when all exist, three when some are created, however many. Each creation is audited.
 * @returns one id for each external id.
 */
export async function ensureIdentities(
  tx: AnySql,
  actor: AuditActor,
  externalIds: readonly string[],
  now: number,
): Promise<Map<string, string>> {
  const wanted = [...new Set(externalIds)]
  const ids = new Map<string, string>()
  // Another transaction may create or delete an identity between our read and our insert: then read again.
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const missing = wanted.filter((externalId) => !ids.has(externalId))
    if (missing.length === 0) return ids
    const held = await holdIdentityIds(tx, actor.workspaceId, missing)
    const absent = missing.filter((externalId) => !held.has(externalId))
    const made = await makeIdentities(tx, actor, absent, now)
    for (const [externalId, id] of held) ids.set(externalId, id)
    for (const { externalId, id } of made) ids.set(externalId, id)
  }
  throw new Error('identities were deleted as fast as they were made')
}

const ATTEMPTS_MAX = 5

async function makeIdentities(tx: AnySql, actor: AuditActor, externalIds: readonly string[], now: number) {
  if (externalIds.length === 0) return []
  const made = await insertMissingIdentities(
    tx,
    actor.workspaceId,
    externalIds.map((externalId) => ({ id: newId('id'), externalId })),
    now,
  )
  await audit(
    tx,
    actor,
    made.map(
      ({ id }): AuditEntry => ({
        event: 'identity.create',
        description: `created identity ${id} for a key`,
        resources: [{ type: 'identity', id }],
      }),
    ),
  )
  return made
}
