import { type AuditActor, type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { newId } from '../../lib/ids.ts'
import { holdPermissions, insertPermissions } from './store.ts'

/**
 * Finds or creates the permissions of these slugs inside the caller's transaction, and locks them against deletion until
 * it ends. A permission created here gets its slug as name, and an audit event. One statement when all exist, three when
 * some are created, however many.
 * @returns one for each slug.
 */
export async function ensurePermissions(
  tx: AnySql,
  actor: AuditActor,
  slugs: readonly string[],
  now: number,
): Promise<Map<string, { id: string; name: string; slug: string }>> {
  const wanted = [...new Set(slugs)]
  const found = new Map<string, { id: string; name: string; slug: string }>()
  // Another transaction may create or delete a permission between our read and our insert: then read again.
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const missing = wanted.filter((slug) => !found.has(slug))
    if (missing.length === 0) return found
    const held = await holdPermissions(tx, actor.workspaceId, { ids: [], slugs: missing })
    for (const { id, name, slug } of held) found.set(slug, { id, name, slug })
    const absent = missing.filter((slug) => !found.has(slug))
    for (const made of await makePermissions(tx, actor, absent, now)) found.set(made.slug, made)
  }
  throw new Error('permissions were deleted as fast as they were made')
}

const ATTEMPTS_MAX = 5

async function makePermissions(tx: AnySql, actor: AuditActor, slugs: readonly string[], now: number) {
  if (slugs.length === 0) return []
  const wanted = slugs.map((slug) => ({ id: newId('perm'), name: slug, slug }))
  const insertedIds = new Set(
    await insertPermissions(
      tx,
      actor.workspaceId,
      wanted.map((permission) => ({ ...permission, description: null })),
      now,
    ),
  )
  const made = wanted.filter(({ id }) => insertedIds.has(id))
  await audit(
    tx,
    actor,
    made.map(
      ({ id, name }): AuditEntry => ({
        event: 'permission.create',
        description: `created permission ${id} for a key`,
        resources: [{ type: 'permission', id, name }],
      }),
    ),
  )
  return made
}
