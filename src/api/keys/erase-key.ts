import { audit } from '../../audit/log.ts'
import type { EraseKeyBody } from '../../doors/v1/keys/schema.ts'
import { ERASURES } from '../../erasure/eraser.ts'
import { ERASE_WAIT_MS, type EraseReply } from '../../erasure/schema.ts'
import {
  deleteImportsOf,
  deleteKeys,
  findAnyKey,
  findErasedName,
  findTraces,
  holdCounts,
  insertErasedNames,
} from '../../erasure/store.ts'
import { notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../root-keys/authorize.ts'

/**
 * Erases a key, also one that was deleted: its record, and its id in what is kept. Asked again, it goes on where it was.
 * The very next verification does not find it; what is kept may take longer than a call.
 */
export async function eraseKey(services: Services, call: Call, { keyId }: EraseKeyBody): Promise<EraseReply> {
  const actor = await authenticate(services, call)
  const { workspaceId } = actor
  const erased = await findErasedName(services.sql, workspaceId, keyId)
  const found =
    erased ??
    (await findAnyKey(services.sql, workspaceId, keyId)) ??
    (await findTrace(services, actor, keyId))
  requireErase(actor, found?.apiId ?? null)
  if (found === null) throw notFound(`key ${keyId}`)
  const { pseudonym, subject } =
    erased ??
    (await services.database.write(async (tx, touch) => {
      // Nobody can count while this holds: what comes after it gets the pseudonym.
      await holdCounts(tx)
      // Of several who ask at once, the others find what the first wrote down.
      const before = await findErasedName(tx, workspaceId, keyId)
      if (before !== null) return before
      const pseudonym = newId('erased')
      const subject = pseudonym
      const name = { kind: 'key' as const, name: keyId, pseudonym, subject, apiId: found.apiId }
      await insertErasedNames(tx, workspaceId, [name], services.clock())
      await deleteImportsOf(tx, workspaceId, [keyId])
      await deleteKeys(tx, workspaceId, [keyId])
      await audit(tx, actor, [
        {
          event: 'key.erase',
          description: `erased a key, known as ${pseudonym} from now on`,
          resources: [
            { type: 'key', id: pseudonym },
            ...(found.apiId === null ? [] : [{ type: 'api', id: found.apiId }]),
          ],
        },
      ])
      touch(keyId, ERASURES)
      return { pseudonym, subject }
    }))
  return { pseudonym, complete: await services.eraser.finishWithin(ERASE_WAIT_MS, workspaceId, subject) }
}

/** Who may not erase keys of that API learns neither whether there is the key nor which API it is of. */
function requireErase(actor: Actor, apiId: string | null): void {
  if (apiId !== null && actor.permissions.has(`api.${apiId}.erase_key`)) return
  requirePermission(actor, anyOf('*', 'api.*.erase_key'))
}

/** Of a key whose row is gone: the audit log knows its API. */
async function findTrace(
  services: Services,
  { workspaceId }: Actor,
  keyId: string,
): Promise<{ apiId: string | null } | null> {
  const traces = await findTraces(services.history, workspaceId, { type: 'key', id: keyId })
  if (traces.length === 0) return null
  return { apiId: traces.find(({ type }) => type === 'api')?.id ?? null }
}
