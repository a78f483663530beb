import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { readMeta } from '../../lib/meta.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { limitEntry } from './audit.ts'
import { newLimits, presentIdentity, readIdentityName, readObject, requireDistinctNames } from './fields.ts'
import type { IdentityReply, Ratelimit, UpdateIdentityBody } from './schema.ts'
import {
  changeIdentity,
  changeIdentityLimits,
  deleteIdentityLimits,
  findIdentity,
  holdIdentity,
  type IdentityLimitRow,
  insertIdentityLimits,
} from './store.ts'

/**
 * Changes an identity; what is not sent stays. However many keys it has, each sees the change at its next verification:
 * they are not written, and what is cached of them hangs on the identity's id.
 */
export async function updateIdentity(
  services: Services,
  call: Call,
  body: UpdateIdentityBody,
): Promise<IdentityReply> {
  const actor = await authenticate(services, call, anyOf('*', 'identity.*.update_identity'))
  const { workspaceId } = actor
  const name = readIdentityName(body)
  requireDistinctNames(body.ratelimits ?? [])
  const meta = readMeta(body.meta)
  const now = services.clock()
  return await services.database.write(async (tx, touch) => {
    const id = await holdIdentity(tx, workspaceId, name)
    const before = id === null ? null : await findIdentity(tx, workspaceId, { id })
    if (before === null) throw notFound(`identity ${'id' in name ? name.id : name.externalId}`)
    const plan = planLimits(before.limits, body.ratelimits)
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
            ...changesOf({ meta: readObject(before.meta) }, { meta: readObject(meta ?? before.meta) }),
          },
        ],
      },
      ...plan.deleted.map((limit) => limitEntry(before.id, { before: limit, after: null })),
      ...plan.changed.map(({ was, ...is }) => limitEntry(before.id, { before: was, after: is })),
      ...plan.created.map((limit) => limitEntry(before.id, { before: null, after: limit })),
    ])
    touch(before.id)
    return presentIdentity({ ...before, meta: meta ?? before.meta, limits: plan.after })
  })
}

type LimitsPlan = {
  deleted: IdentityLimitRow[]
  /** Same name, other values: the row keeps its id. */
  changed: (IdentityLimitRow & { was: IdentityLimitRow })[]
  created: IdentityLimitRow[]
  /** What the identity then has: those it had first. */
  after: IdentityLimitRow[]
}

/** @param wanted All it shall have, names distinct; undefined = as before. */
export function planLimits(
  before: readonly IdentityLimitRow[],
  wanted: readonly Ratelimit[] | undefined,
): LimitsPlan {
  if (wanted === undefined) return { deleted: [], changed: [], created: [], after: [...before] }
  const wantedByName = new Map(wanted.map((ratelimit) => [ratelimit.name, ratelimit]))
  const deleted: IdentityLimitRow[] = []
  const changed: LimitsPlan['changed'] = []
  const kept: IdentityLimitRow[] = []
  for (const row of before) {
    const ratelimit = wantedByName.get(row.name)
    if (ratelimit === undefined) {
      deleted.push(row)
      continue
    }
    const after = { ...row, limit: ratelimit.limit, durationMs: ratelimit.duration }
    kept.push(after)
    if (after.limit !== row.limit || after.durationMs !== row.durationMs) changed.push({ ...after, was: row })
  }
  const names = new Set(before.map((row) => row.name))
  const created = newLimits(wanted.filter((ratelimit) => !names.has(ratelimit.name)))
  return { deleted, changed, created, after: [...kept, ...created] }
}
