import { audit } from '../../audit/log.ts'
import { ERASE_WAIT_MS, ERASURES, type Erasure } from '../../erasure/eraser.ts'
import {
  clearOwnerOfDeleted,
  deleteImportsOfOwners,
  deleteOverridesOf,
  emptyIdentity,
  findErasedName,
  findTraces,
  holdCounts,
  insertErasedNames,
  type KeysOf,
  revokeSomeKeysOf,
} from '../../erasure/store.ts'
import { notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type ExactIdentityName, holdIdentity, type IdentityRow } from './store.ts'

/**
 * Erases a person: the identity, its keys, and every name of the person in stored data. A repeated call continues the
 * erasure. When this returns, the keys are revoked and no answer shows the person; the rest of the work may take longer
 * than the call.
 * @param identity From `getIdentity` by that name; null = it does not exist any more.
 * @throws ApiError NOT_FOUND for an id without any trace.
 */
export async function eraseIdentity(
  services: Pick<Services, 'sql' | 'history' | 'database' | 'clock' | 'eraser'>,
  actor: Actor,
  by: ExactIdentityName,
  identity: IdentityRow | null,
): Promise<Erasure> {
  const { workspaceId } = actor
  const person = await findPerson(services, actor, by, identity)
  const now = services.clock()

  // In a transaction of its own, because no usage can be written meanwhile. Usage written afterwards gets the pseudonym, and
  // the keys of the identity are not found any more.
  const subject = await services.database.write(async (tx, invalidate) => {
    await holdCounts(tx)
    // Only now, under the lock: of several calls at once, the later ones find the name that the first recorded.
    const erased = await findErasedName(tx, workspaceId, person.externalId ?? person.id ?? '')
    const subject = erased?.subject ?? newId('erased')
    // An external id that was erased may be in use again, by a new identity.
    const isNew =
      erased === null || (person.id !== null && (await findErasedName(tx, workspaceId, person.id)) === null)
    const names = [
      ...(person.id === null ? [] : [{ kind: 'identity' as const, name: person.id }]),
      ...(person.externalId === null ? [] : [{ kind: 'external' as const, name: person.externalId }]),
    ].map((name) => ({ ...name, pseudonym: subject, subject, apiId: null }))
    await insertErasedNames(tx, workspaceId, names, now)
    if (person.id !== null) invalidate(person.id)
    if (isNew)
      await audit(tx, actor, [
        {
          event: 'identity.erase',
          description: `erased an identity, known as ${subject} from now on`,
          resources: [{ type: 'identity', id: subject }],
        },
      ])
    return subject
  })
  const identityIds = person.id === null ? [] : [person.id]
  const ownerIds = person.externalId === null ? [] : [person.externalId]
  await services.database.write(
    async (tx, invalidate) => {
      for (const id of identityIds)
        if ((await holdIdentity(tx, workspaceId, { id })) !== null)
          await emptyIdentity(tx, workspaceId, { id, externalId: newId('erased'), now })
      invalidate(...identityIds)
      for (const owner of ownerIds) await clearOwnerOfDeleted(tx, workspaceId, owner)
      invalidate(...(await deleteOverridesOf(tx, workspaceId, [...identityIds, ...ownerIds])))
      await deleteImportsOfOwners(tx, workspaceId, ownerIds)
      invalidate(ERASURES)
    },
    { timeoutMs: MANY_KEYS_MS },
  )
  await revokeKeys(services, workspaceId, { identityIds, ownerIds })
  const complete = await services.eraser.finishWithin(ERASE_WAIT_MS, workspaceId, subject)
  return { pseudonym: subject, complete }
}

/** Revokes all keys of the person, in transactions so short that nobody else waits for them. */
async function revokeKeys(
  { database, clock }: Pick<Services, 'database' | 'clock'>,
  workspaceId: Actor['workspaceId'],
  keysOf: KeysOf,
): Promise<void> {
  const slice = () =>
    database.write(async (tx, invalidate) => {
      const changed = await revokeSomeKeysOf(tx, workspaceId, keysOf, { limit: KEYS_AT_ONCE, now: clock() })
      if (changed === null) return false
      // Keys of the person's identity are dropped with it.
      const known = changed.flatMap(({ identityId }) =>
        identityId !== null && keysOf.identityIds.includes(identityId) ? [identityId] : [],
      )
      const others = changed.filter(({ identityId }) => !known.includes(identityId ?? ''))
      invalidate(...new Set(known), ...others.map(({ id }) => id))
      return true
    })
  while (await slice());
}
const KEYS_AT_ONCE = 200

type Person = { id: string | null; externalId: string | null }

/**
 * Finds the person by the identity, or by the audit events of an earlier deletion.
 * @throws ApiError NOT_FOUND for an id without any trace.
 */
async function findPerson(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: ExactIdentityName,
  identity: IdentityRow | null,
): Promise<Person> {
  const id = 'id' in by ? by.id : (identity?.id ?? null)
  // While an erasure runs, the row has another external id. The recorded names have the right one.
  const isErased = id !== null && (await findErasedName(sql, workspaceId, id)) !== null
  if (!('id' in by)) return { id, externalId: by.externalId }
  if (isErased) return { id: by.id, externalId: null }
  if (identity !== null) return { id: by.id, externalId: identity.externalId }
  const traces = await findTraces(history, workspaceId, { type: 'identity', id: by.id })
  if (traces.length === 0) throw notFound('identity', by.id)
  const named = traces.find((trace) => trace.id === by.id && typeof trace.meta?.externalId === 'string')
  const externalId = named?.meta?.externalId
  return { id: by.id, externalId: typeof externalId === 'string' ? externalId : null }
}
