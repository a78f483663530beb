import { audit } from '../../audit/log.ts'
import { ERASE_WAIT_MS, ERASURES, type Erasure } from '../../erasure/eraser.ts'
import {
  deleteImportsOf,
  deleteKeys,
  findAnyKey,
  findErasedName,
  findTraces,
  holdCounts,
  insertErasedNames,
} from '../../erasure/store.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/** A key of which something is kept: its row, its erasure, or its trace in the audit log. */
export type KeyToErase = {
  id: string
  /** Null = not known any more. */
  apiId: string | null
  /** Of an erasure that was asked for before; null = this is the first. */
  erased: { pseudonym: string; subject: string } | null
}

/** A key, also a deleted or an erased one; null when nothing is known of it. */
export async function findKeyToErase(
  services: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<KeyToErase | null> {
  const before = await findErasedName(services.sql, workspaceId, id)
  const found =
    before ??
    (await findAnyKey(services.sql, workspaceId, id)) ??
    (await findTrace(services, workspaceId, id))
  // An erasure that another call made since takes away what would have been found.
  const erased = found === null ? await findErasedName(services.sql, workspaceId, id) : before
  const known = erased ?? found
  return known && { id, apiId: known.apiId, erased }
}

/**
 * Erases a key, also one that was deleted: its record, and its id in what is kept. Asked again, it goes on where it was.
 * The very next verification does not find it; what is kept may take longer than a call.
 * @param key From {@link findKeyToErase}.
 */
export async function eraseKey(
  services: Pick<Services, 'database' | 'clock' | 'eraser'>,
  actor: Actor,
  key: KeyToErase,
): Promise<Erasure> {
  const { workspaceId } = actor
  const { pseudonym, subject } = key.erased ?? (await beginErasure(services, actor, key))
  return { pseudonym, complete: await services.eraser.finishWithin(ERASE_WAIT_MS, workspaceId, subject) }
}

async function beginErasure(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { id, apiId }: KeyToErase,
): Promise<{ pseudonym: string; subject: string }> {
  const { workspaceId } = actor
  return await services.database.write(async (tx, touch) => {
    // Nobody can count while this holds: what comes after it gets the pseudonym.
    await holdCounts(tx)
    // Of several who ask at once, the others find what the first wrote down.
    const before = await findErasedName(tx, workspaceId, id)
    if (before !== null) return before
    const pseudonym = newId('erased')
    const subject = pseudonym
    const name = { kind: 'key' as const, name: id, pseudonym, subject, apiId }
    await insertErasedNames(tx, workspaceId, [name], services.clock())
    await deleteImportsOf(tx, workspaceId, [id])
    await deleteKeys(tx, workspaceId, [id])
    await audit(tx, actor, [
      {
        event: 'key.erase',
        description: `erased a key, known as ${pseudonym} from now on`,
        resources: [{ type: 'key', id: pseudonym }, ...(apiId === null ? [] : [{ type: 'api', id: apiId }])],
      },
    ])
    touch(id, ERASURES)
    return { pseudonym, subject }
  })
}

/** Of a key whose row is gone: the audit log knows its API. */
async function findTrace(
  { history }: Pick<Services, 'history'>,
  workspaceId: WorkspaceId,
  id: string,
): Promise<{ apiId: string | null } | null> {
  const traces = await findTraces(history, workspaceId, { type: 'key', id })
  if (traces.length === 0) return null
  return { apiId: traces.find(({ type }) => type === 'api')?.id ?? null }
}
