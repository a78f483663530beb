import { audit } from '../../audit/log.ts'
import { ERASE_WAIT_MS, ERASURES, type Erasure } from '../../erasure/eraser.ts'
import {
  deleteImportsOfKeys,
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

/** A key with stored data: its row, its earlier erasure, or its audit events. */
export type KeyToErase = {
  id: string
  /** Null = not known any more. */
  apiId: string | null
  /** The earlier erasure of this key. Null = this is the first. */
  erased: { pseudonym: string; subject: string } | null
}

/** Finds a key, including deleted and erased ones. Null when nothing about it is stored. */
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
  // A concurrent erasure removes what this looks for: then its record is found instead.
  const erased = found === null ? await findErasedName(services.sql, workspaceId, id) : before
  const known = erased ?? found
  return known && { id, apiId: known.apiId, erased }
}

/**
 * Erases a key, including a deleted one: its row, and its id in stored data. A repeated call continues the erasure. The
 * next verification does not find the key; the stored data may take longer than the call.
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
  return await services.database.write(async (tx, invalidate) => {
    // No usage can be written while this lock is held. Usage written afterwards gets the pseudonym.
    await holdCounts(tx)
    // Of several calls at once, the later ones find the name that the first recorded.
    const before = await findErasedName(tx, workspaceId, id)
    if (before !== null) return before
    const pseudonym = newId('erased')
    const subject = pseudonym
    const name = { kind: 'key' as const, name: id, pseudonym, subject, apiId }
    await insertErasedNames(tx, workspaceId, [name], services.clock())
    await deleteImportsOfKeys(tx, workspaceId, [id])
    await deleteKeys(tx, workspaceId, [id])
    await audit(tx, actor, [
      {
        event: 'key.erase',
        description: `erased a key, known as ${pseudonym} from now on`,
        resources: [{ type: 'key', id: pseudonym }, ...(apiId === null ? [] : [{ type: 'api', id: apiId }])],
      },
    ])
    invalidate(id, ERASURES)
    return { pseudonym, subject }
  })
}

/** For a key without a row: the audit log knows its API. */
async function findTrace(
  { history }: Pick<Services, 'history'>,
  workspaceId: WorkspaceId,
  id: string,
): Promise<{ apiId: string | null } | null> {
  const traces = await findTraces(history, workspaceId, { type: 'key', id })
  if (traces.length === 0) return null
  return { apiId: traces.find(({ type }) => type === 'api')?.id ?? null }
}
