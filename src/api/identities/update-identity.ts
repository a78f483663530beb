import { isDeepStrictEqual } from 'node:util'
import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { parseMeta } from '../../lib/meta.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { limitEntry } from './audit.ts'
import { newLimits, type WantedLimit } from './new-limits.ts'
import {
  changeIdentity,
  changeIdentityLimits,
  deleteIdentityLimits,
  findIdentity,
  holdIdentity,
  type IdentityLimitRow,
  type IdentityName,
  type IdentityRow,
  insertIdentityLimits,
  textOf,
} from './store.ts'

export type IdentityChange = {
  /** JSON text of an object, from `readMeta`; null = leave it unchanged. */
  meta: string | null
  /** All limits that it then has, with distinct names; null = leave them unchanged. */
  limits: readonly WantedLimit[] | null
}

/**
 * Changes an identity. All its keys have the change at their next verification: keys are not written, and cached keys
 * depend on the identity's id.
 * @returns the identity after the change.
 * @throws ApiError NOT_FOUND
 */
export async function updateIdentity(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  by: IdentityName,
  { meta, limits }: IdentityChange,
): Promise<IdentityRow> {
  const { workspaceId } = actor
  const now = services.clock()
  return await services.database.write(async (tx, invalidate) => {
    const id = await holdIdentity(tx, workspaceId, by)
    const before = id === null ? null : await findIdentity(tx, workspaceId, { id })
    if (before === null) throw notFound('identity', textOf(by))
    const plan = planLimits(before.limits, limits)
    await changeIdentity(tx, workspaceId, { id: before.id, meta, now })
    await deleteIdentityLimits(
      tx,
      workspaceId,
      before.id,
      plan.deleted.map((limit) => limit.id),
    )
    await changeIdentityLimits(tx, workspaceId, before.id, plan.changed, now)
    await insertIdentityLimits(tx, workspaceId, before.id, plan.created, now)
    await audit(tx, actor, [
      {
        event: 'identity.update',
        description: `updated identity ${before.id}`,
        resources: [
          {
            type: 'identity',
            id: before.id,
            ...changesOf({ meta: parseMeta(before.meta) }, { meta: parseMeta(meta ?? before.meta) }),
          },
        ],
      },
      ...plan.deleted.map((limit) => limitEntry(before.id, { before: limit, after: null })),
      ...plan.changed.map(({ was, ...is }) => limitEntry(before.id, { before: was, after: is })),
      ...plan.created.map((limit) => limitEntry(before.id, { before: null, after: limit })),
    ])
    invalidate(before.id)
    return { ...before, meta: meta ?? before.meta, limits: plan.after }
  })
}

type LimitsPlan = {
  deleted: IdentityLimitRow[]
  /** Limits whose values change under the same name; the row keeps its id. */
  changed: (IdentityLimitRow & { was: IdentityLimitRow })[]
  created: IdentityLimitRow[]
  /** All limits after the change, existing ones first. */
  after: IdentityLimitRow[]
}

/** @param wanted All limits after the change, with distinct names; null = unchanged. */
function planLimits(before: readonly IdentityLimitRow[], wanted: readonly WantedLimit[] | null): LimitsPlan {
  if (wanted === null) return { deleted: [], changed: [], created: [], after: [...before] }
  const wantedByName = new Map(wanted.map((limit) => [limit.name, limit]))
  const deleted: IdentityLimitRow[] = []
  const changed: LimitsPlan['changed'] = []
  const kept: IdentityLimitRow[] = []
  for (const row of before) {
    const limit = wantedByName.get(row.name)
    if (limit === undefined) {
      deleted.push(row)
      continue
    }
    const after = {
      ...row,
      limit: limit.limit,
      durationMs: limit.durationMs,
      autoApply: limit.autoApply ?? row.autoApply,
    }
    kept.push(after)
    if (!isDeepStrictEqual(after, row)) changed.push({ ...after, was: row })
  }
  const names = new Set(before.map((row) => row.name))
  const created = newLimits(wanted.filter(({ name }) => !names.has(name)))
  return { deleted, changed, created, after: [...kept, ...created] }
}
