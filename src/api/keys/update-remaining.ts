import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { requireOwnCredits } from './own-credits.ts'
import { type Refill, refillChange, refillColumns, refillOf } from './refill.ts'
import { changeKey, findKey, holdKey, moveRemaining } from './store.ts'

/**
 * A step, or a new number of credits; null = the key then has no credits to count, and with `endsRefill` no refill either.
 * A result below 0 becomes 0.
 */
export type RemainingChange =
  | { op: 'increment' | 'decrement'; value: number }
  | { op: 'set'; value: number }
  | { op: 'set'; value: null; endsRefill: boolean }

/** Credits of a key. `remaining` null = it has none to count. */
export type KeyCredits = { remaining: number | null; refill: Refill | null }

/** `beyond`: the credits would exceed the bound. `uncounted`: a step on a key without credits. */
export type RemainingRefusal = 'beyond' | 'uncounted'

/**
 * Changes the credits left in one statement, which is safe beside verifications that spend them. Never goes below 0.
 * @param key From `getKey`.
 * @returns the credits after the change, or why nothing changed.
 * @throws ApiError NOT_FOUND when the key was deleted meanwhile; PRECONDITION_FAILED for a rerolled key.
 */
export async function updateRemaining(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { id, apiId }: { id: string; apiId: string },
  change: RemainingChange,
): Promise<KeyCredits | RemainingRefusal> {
  const { workspaceId } = actor
  const { op, value } = change
  const endsRefill = value === null && change.endsRefill
  return await services.database.write(async (tx, invalidate) => {
    const hash = await holdKey(tx, workspaceId, id)
    const before = hash === null ? null : await findKey(tx, workspaceId, id)
    if (hash === null || before === null) throw notFound('key', id)
    requireOwnCredits(before)
    const now = services.clock()
    const remaining =
      op === 'set'
        ? await set(tx, workspaceId, id, { value, endsRefill }, now)
        : await move(tx, workspaceId, id, op === 'increment' ? value : -value, now)
    if (remaining === 'beyond' || remaining === 'uncounted') return remaining
    const refill = refillOf(before)
    const after = { remaining, refill: endsRefill ? null : refill }
    await audit(tx, actor, [
      {
        event: 'key.update',
        description: `updated key ${id}: remaining ${op} ${value ?? 'unlimited'}`,
        resources: [
          {
            type: 'key',
            id,
            ...changesOf(changeable(before.remaining, refill), changeable(remaining, after.refill)),
          },
          { type: 'api', id: apiId },
        ],
      },
    ])
    invalidate(id, hash)
    return after
  })
}

const changeable = (remaining: number | null, refill: Refill | null) => ({
  remaining,
  refill: refillChange(refill),
})

async function set(
  tx: Transaction,
  workspaceId: WorkspaceId,
  keyId: string,
  { value, endsRefill }: { value: number | null; endsRefill: boolean },
  now: number,
): Promise<number | null> {
  const remaining = value === null ? null : Math.max(0, value)
  const change = { remaining, ...(endsRefill ? refillColumns(null, null) : {}) }
  if (!(await changeKey(tx, workspaceId, keyId, change, now))) throw notFound('key', keyId)
  return remaining
}

async function move(
  tx: Transaction,
  workspaceId: WorkspaceId,
  keyId: string,
  by: number,
  now: number,
): Promise<number | RemainingRefusal> {
  const remaining = await moveRemaining(tx, workspaceId, keyId, by, now)
  if (remaining === undefined) throw notFound('key', keyId)
  return remaining ?? 'uncounted'
}
