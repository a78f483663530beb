import { audit } from '../../audit/log.ts'
import { ERASE_WAIT_MS, ERASURES, type Erasure } from '../../erasure/eraser.ts'
import {
  clearOwner,
  deleteImportsOf,
  deleteOverridesOf,
  emptyIdentity,
  findErasedName,
  findTraces,
  holdCounts,
  insertErasedNames,
  revokeKeysOf,
} from '../../erasure/store.ts'
import { notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { holdIdentity, type IdentityName, type IdentityRow } from './store.ts'

/**
 * Erases a person: the identity, its keys, and every name of theirs in what is kept. Asked again, it goes on where it was.
 * The keys are revoked and nothing shows the person any more when this answers; the rest may take longer than a call.
 * @param identity From `getIdentity` by that name; null = there is none any more.
 * @throws ApiError NOT_FOUND for an id that nothing is known of.
 */
export async function eraseIdentity(
  services: Pick<Services, 'sql' | 'history' | 'database' | 'clock' | 'eraser'>,
  actor: Actor,
  by: IdentityName,
  identity: IdentityRow | null,
): Promise<Erasure> {
  const { workspaceId } = actor
  const person = await findPerson(services, actor, by, identity)
  const now = services.clock()

  // By itself, as nobody can count while it holds: what comes after it gets the pseudonym.
  const subject = await services.database.write(async (tx) => {
    await holdCounts(tx)
    // Only now: of several who ask at once, the others find what the first wrote down.
    const erased = await findErasedName(tx, workspaceId, person.externalId ?? person.id ?? '')
    const subject = erased?.subject ?? newId('erased')
    // An external id that was erased may have come back, with a new identity.
    const isNew =
      erased === null || (person.id !== null && (await findErasedName(tx, workspaceId, person.id)) === null)
    const names = [
      ...(person.id === null ? [] : [{ kind: 'identity' as const, name: person.id }]),
      ...(person.externalId === null ? [] : [{ kind: 'external' as const, name: person.externalId }]),
    ].map((name) => ({ ...name, pseudonym: subject, subject, apiId: null }))
    await insertErasedNames(tx, workspaceId, names, now)
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
  await services.database.write(
    async (tx, touch) => {
      const identityIds = person.id === null ? [] : [person.id]
      const ownerIds = person.externalId === null ? [] : [person.externalId]
      for (const id of identityIds)
        if ((await holdIdentity(tx, workspaceId, { id })) !== null)
          await emptyIdentity(tx, workspaceId, { id, externalId: newId('erased'), now })
      const revoked = await revokeKeysOf(tx, workspaceId, { identityIds, ownerIds }, now)
      touch(...identityIds, ...revoked.filter(({ identityId }) => identityId === null).map(({ id }) => id))
      for (const owner of ownerIds) touch(...(await clearOwner(tx, workspaceId, owner)))
      touch(...(await deleteOverridesOf(tx, workspaceId, [...identityIds, ...ownerIds])))
      await deleteImportsOf(tx, workspaceId, ownerIds)
      touch(ERASURES)
    },
    { timeoutMs: MANY_KEYS_MS },
  )
  const complete = await services.eraser.finishWithin(ERASE_WAIT_MS, workspaceId, subject)
  return { pseudonym: subject, complete }
}

type Person = { id: string | null; externalId: string | null }

/**
 * By what is there, else by what an earlier deletion left in the audit log.
 * @throws ApiError NOT_FOUND for an id that nothing is known of.
 */
async function findPerson(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: IdentityName,
  identity: IdentityRow | null,
): Promise<Person> {
  const id = 'id' in by ? by.id : (identity?.id ?? null)
  // Of one whose erasure is not finished the row has another external id; the names are written down.
  const isErased = id !== null && (await findErasedName(sql, workspaceId, id)) !== null
  if (!('id' in by)) return { id, externalId: by.externalId }
  if (isErased) return { id: by.id, externalId: null }
  if (identity !== null) return { id: by.id, externalId: identity.externalId }
  const traces = await findTraces(history, workspaceId, { type: 'identity', id: by.id })
  if (traces.length === 0) throw notFound(`identity ${by.id}`)
  const named = traces.find((trace) => trace.id === by.id && typeof trace.meta?.externalId === 'string')
  const externalId = named?.meta?.externalId
  return { id: by.id, externalId: typeof externalId === 'string' ? externalId : null }
}
