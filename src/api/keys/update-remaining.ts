import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { changeKey, findKey, holdKey, moveRemaining } from './store.ts'

/** A step, or a new number of credits; null = the key then has no credits to count. A result below 0 becomes 0. */
export type RemainingChange =
  | { op: 'increment' | 'decrement'; value: number }
  | { op: 'set'; value: number | null }

/** `beyond`: the credits would exceed the bound. `uncounted`: a step on a key without credits. */
export type RemainingRefusal = 'beyond' | 'uncounted'

/**
 * Changes the credits left in one statement, which is safe beside verifications that spend them. Never goes below 0.
 * @param key From `getKey`.
 * @returns the credits left, null = the key has none; or why nothing changed.
 * @throws ApiError NOT_FOUND when the key was deleted meanwhile.
 */
export async function updateRemaining(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { id, apiId }: { id: string; apiId: string },
  { op, value }: RemainingChange,
): Promise<number | null | RemainingRefusal> {
  const { workspaceId } = actor
  return await services.database.write(async (tx, invalidate) => {
    const hash = await holdKey(tx, workspaceId, id)
    const before = hash === null ? null : await findKey(tx, workspaceId, id)
    if (hash === null || before === null) throw notFound('key', id)
    const now = services.clock()
    const remaining =
      op === 'set'
        ? await set(tx, workspaceId, id, value, now)
        : await move(tx, workspaceId, id, op === 'increment' ? value : -value, now)
    if (remaining === 'beyond' || remaining === 'uncounted') return remaining
    await audit(tx, actor, [
      {
        event: 'key.update',
        description: `updated key ${id}: remaining ${op} ${value ?? 'unlimited'}`,
        resources: [
          { type: 'key', id, ...changesOf({ remaining: before.remaining }, { remaining }) },
          { type: 'api', id: apiId },
        ],
      },
    ])
    invalidate(id, hash)
    return remaining
  })
}

async function set(
  tx: Transaction,
  workspaceId: WorkspaceId,
  keyId: string,
  value: number | null,
  now: number,
): Promise<number | null> {
  const remaining = value === null ? null : Math.max(0, value)
  if (!(await changeKey(tx, workspaceId, keyId, { remaining }, now))) throw notFound('key', keyId)
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
