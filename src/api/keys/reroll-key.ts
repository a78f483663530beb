import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { insertEncryptedKeys } from '../../vault/store.ts'
import { makeSecret } from '../../verify/secret.ts'
import type { ApiRow } from '../apis/store.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import { endSource, insertSuccessor } from '../rerolls/store.ts'
import { endOfSource, requireRerollable } from '../rerolls/succession.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  findKey,
  holdKey,
  insertKeyPermissions,
  insertKeyRoles,
  type KeyRow,
  listKeyPermissions,
  listKeyRoles,
} from './store.ts'

export type RerolledKey = {
  id: string
  /** The text of the new key. Only its hash is stored, unless the key is recoverable. */
  text: string
  /** When the old key ends, Unix ms. */
  oldExpiresAt: number
}

/**
 * Makes a key's successor: a new text with everything else that the key has, and an end for the key itself. The successor
 * gets the credits, so that none are there twice; until the key ends, both spend them and both count in the same windows.
 * It is recoverable when the key is.
 * @param source From `getKey`.
 * @param api The source's, from `getApiWithKeys`. Call `requireRecoverable` first when the source is recoverable.
 * @param options.overlapMs How long the source still works.
 * @throws ApiError NOT_FOUND when the source was deleted meanwhile; PRECONDITION_FAILED when it has expired or has a
 *   successor, and at a bound of the workspace.
 */
export async function rerollKey(
  services: Pick<Services, 'database' | 'clock' | 'vault'>,
  actor: Actor,
  source: Pick<KeyRow, 'id' | 'start' | 'ciphertext'>,
  api: Pick<ApiRow, 'id' | 'defaultPrefix' | 'defaultBytes'>,
  { overlapMs }: { overlapMs: number },
  keep: Keep<{ id: string; text: string }> = keepNothing,
): Promise<RerolledKey> {
  const { workspaceId } = actor
  const now = services.clock()
  const id = newId('key')
  const { key: text, ...secret } = makeSecret({
    prefix: prefixOf(source.start),
    defaultPrefix: api.defaultPrefix,
    byteLength: api.defaultBytes,
  })
  const sealed =
    source.ciphertext === null ? [] : await services.vault.seal(workspaceId, [{ keyId: id, plaintext: text }])

  const oldExpiresAt = await services.database.write(async (tx, invalidate) => {
    const oldHash = await holdKey(tx, workspaceId, source.id)
    const before = oldHash === null ? null : await findKey(tx, workspaceId, source.id)
    if (oldHash === null || before === null) throw notFound('key', source.id)
    await requireRerollable(tx, before, { what: 'key', now })

    await insertSuccessor(tx, source.id, { id, ...secret, grantedBy: null }, now)
    const roles = await listKeyRoles(tx, workspaceId, source.id)
    const permissions = await listKeyPermissions(tx, workspaceId, source.id)
    await insertKeyRoles(
      tx,
      workspaceId,
      roles.map((role) => ({ keyId: id, roleId: role.id })),
      now,
    )
    await insertKeyPermissions(
      tx,
      workspaceId,
      permissions.map((permission) => ({ keyId: id, permissionId: permission.id })),
      now,
    )
    await insertEncryptedKeys(tx, workspaceId, sealed, now)
    const ended = { successorId: id, endsAt: endOfSource(now, overlapMs), now }
    const { expiresAt, predecessors } = await endSource(tx, source.id, ended)
    await audit(tx, actor, [
      {
        event: 'key.reroll',
        description: `rerolled key ${source.id} of API ${api.id} into key ${id}`,
        resources: [
          { type: 'key', id: source.id, ...changesOf({ expires: before.expiresAt }, { expires: expiresAt }) },
          { type: 'key', id },
          { type: 'api', id: api.id },
        ],
      },
    ])
    await keep(tx, { id, text })
    invalidate(source.id, oldHash, secret.hash, ...predecessors)
    return expiresAt
  })
  return { id, text, oldExpiresAt }
}

/** The prefix that a key was created with, from its visible beginning: `prefix_` and four characters. */
const prefixOf = (start: string): string | undefined => /^(.+)_[1-9A-HJ-NP-Za-km-z]{4}$/s.exec(start)?.[1]
