import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import type { UpdateRemainingBody, UpdateRemainingReply } from '../../doors/v1/keys/schema.ts'
import { badRequest, notFound } from '../../errors.ts'
import { COUNT_MAX } from '../../lib/bounds.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import { changeKey, findKey, holdKey, moveRemaining } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'update_key' }

/** Changes the uses left, next to verifications that spend them: one statement decides. Never below zero. */
export async function updateRemaining(
  services: Services,
  call: Call,
  body: UpdateRemainingBody,
): Promise<UpdateRemainingReply> {
  const { keyId, op, value } = body
  if (value === null && op !== 'set') throw badRequest('value: Expected number, received null')
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const key = await findKey(services.sql, actor.workspaceId, keyId)
  if (key === null) throw notFound(`key ${keyId}`)
  requireOn(actor, RIGHT, key.apiId)
  return await services.database.write(async (tx, touch) => {
    const before = (await holdKey(tx, actor.workspaceId, keyId))
      ? await findKey(tx, actor.workspaceId, keyId)
      : null
    if (before === null) throw notFound(`key ${keyId}`)
    const remaining = await change(tx, actor.workspaceId, body, services.clock())
    await audit(tx, actor, [
      {
        event: 'key.update',
        description: `updated key ${keyId}: remaining ${op} ${value ?? 'unlimited'}`,
        resources: [
          { type: 'key', id: keyId, ...changesOf({ remaining: before.remaining }, { remaining }) },
          { type: 'api', id: key.apiId },
        ],
      },
    ])
    touch(keyId)
    return { remaining }
  })
}

/** @throws ApiError NOT_FOUND; BAD_REQUEST for a step on a key whose uses are not counted, or beyond what can be counted. */
async function change(
  tx: Transaction,
  workspaceId: WorkspaceId,
  { keyId, op, value }: UpdateRemainingBody,
  now: number,
): Promise<number | null> {
  if (op === 'set' || value === null) {
    const remaining = value === null ? null : Math.max(0, value)
    if (!(await changeKey(tx, workspaceId, keyId, { remaining }, now))) throw notFound(`key ${keyId}`)
    return remaining
  }
  const remaining = await moveRemaining(tx, workspaceId, keyId, op === 'increment' ? value : -value, now)
  if (remaining === undefined) throw notFound(`key ${keyId}`)
  if (remaining === 'beyond')
    throw badRequest(`value: remaining would be more than ${COUNT_MAX}; nothing was changed`)
  if (remaining === null)
    throw badRequest(`op: key ${keyId} has unlimited uses; set a number before you ${op} it`)
  return remaining
}
