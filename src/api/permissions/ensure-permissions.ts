import { type AuditActor, type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { newId } from '../../lib/ids.ts'
import { holdPermissions, holdRoles, insertPermissions, insertRoles } from './store.ts'

/**
 * Finds or creates the permissions of these slugs inside the caller's transaction, and locks them against deletion until
 * it ends. A permission created here gets its slug as name, and an audit event. One statement when all exist, three when
 * some are created, however many.
 * @returns one for each slug.
 */
export const ensurePermissions = (tx: AnySql, actor: AuditActor, slugs: readonly string[], now: number) =>
  ensure<{ id: string; name: string; slug: string }>(slugs, {
    textOf: ({ slug }) => slug,
    hold: async (missing) =>
      (await holdPermissions(tx, actor.workspaceId, { ids: [], slugs: missing })).map(
        ({ id, name, slug }) => ({ id, name, slug }),
      ),
    make: async (absent) => {
      const wanted = absent.map((slug) => ({ id: newId('perm'), name: slug, slug, description: null }))
      const ids = new Set(await insertPermissions(tx, actor.workspaceId, wanted, now))
      const made = wanted.filter(({ id }) => ids.has(id)).map(({ id, name, slug }) => ({ id, name, slug }))
      await audit(tx, actor, made.map(createdForKey('permission')))
      return made
    },
  })

/** As {@link ensurePermissions}, for roles by name. A role created here has no permissions. */
export const ensureRoles = (tx: AnySql, actor: AuditActor, names: readonly string[], now: number) =>
  ensure<{ id: string; name: string }>(names, {
    textOf: ({ name }) => name,
    hold: async (missing) =>
      (await holdRoles(tx, actor.workspaceId, { ids: [], names: missing })).map(({ id, name }) => ({
        id,
        name,
      })),
    make: async (absent) => {
      const wanted = absent.map((name) => ({ id: newId('role'), name, description: null }))
      const ids = new Set(await insertRoles(tx, actor.workspaceId, wanted, now))
      const made = wanted.filter(({ id }) => ids.has(id)).map(({ id, name }) => ({ id, name }))
      await audit(tx, actor, made.map(createdForKey('role')))
      return made
    },
  })

async function ensure<T>(
  texts: readonly string[],
  {
    textOf,
    hold,
    make,
  }: {
    textOf: (found: T) => string
    hold: (texts: readonly string[]) => Promise<T[]>
    /** Leaves out what another transaction makes. */
    make: (texts: readonly string[]) => Promise<T[]>
  },
): Promise<Map<string, T>> {
  const wanted = [...new Set(texts)]
  const found = new Map<string, T>()
  // Another transaction may create or delete one between our read and our insert: then read again.
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const missing = wanted.filter((text) => !found.has(text))
    if (missing.length === 0) return found
    for (const each of await hold(missing)) found.set(textOf(each), each)
    const absent = missing.filter((text) => !found.has(text))
    if (absent.length > 0) for (const each of await make(absent)) found.set(textOf(each), each)
  }
  throw new Error('roles or permissions were deleted as fast as they were made')
}

const ATTEMPTS_MAX = 5

const createdForKey =
  (type: 'role' | 'permission') =>
  ({ id, name }: { id: string; name: string }): AuditEntry => ({
    event: `${type}.create`,
    description: `created ${type} ${id} for a key`,
    resources: [{ type, id, name }],
  })
