import { changesOf } from '../../audit/changes.ts'
import { type AuditEntry, audit } from '../../audit/log.ts'
import { StartError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Database } from '../../records/database.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import { fieldsOf } from './audit.ts'
import { disableRootKeys, findDefaultWorkspace, insertRootKey, lockOperatorKeys } from './store.ts'

export type RescuedKey = {
  id: string
  /** The text of the root key, which is not stored. */
  secret: string
  /** Ids of the operator root keys that were disabled. */
  disabled: string[]
}

/**
 * Makes an operator root key for who holds the database and no operator root key. The audit log of the workspace `default` says
 * so; the new root key stands there as the one that acted.
 * @param options.isReplacing Also disable all other operator root keys.
 * @param options.by Where the command ran, for the audit log.
 * @param options.save Called with the text before the root key exists. What it throws undoes everything.
 * @throws StartError when no server has ever started on the database.
 */
export async function rescueOperatorKey(
  database: Database,
  {
    isReplacing,
    by,
    now,
    save,
  }: { isReplacing: boolean; by: string; now: number; save: (secret: string) => void },
): Promise<RescuedKey> {
  const id = newId('key')
  const { key: secret, start, hash } = makeRootSecret()
  const name = 'operator root key (rescue)'
  const permissions = ['*']
  return await database.write(async (tx, invalidate) => {
    const workspaceId = await findDefaultWorkspace(tx)
    if (workspaceId === null)
      throw new StartError('the database is new and has no root key to lose; start a server, which makes one')
    const others = isReplacing ? (await lockOperatorKeys(tx)).filter(({ enabled }) => enabled) : []
    await insertRootKey(tx, {
      ...{ id, hash, start, name, permissions, now },
      forWorkspaceId: workspaceId,
      isOperator: true,
      expiresAt: null,
      grantedBy: null,
    })
    const disabled = others.map((each) => each.id)
    await disableRootKeys(tx, disabled, now)
    const made = fieldsOf({ name, permissions, enabled: true, expiresAt: null })
    const entries: AuditEntry[] = [
      {
        event: 'rootKey.rescue',
        description: `made operator root key ${id} with access to the database`,
        resources: [{ type: 'rootKey', id, ...changesOf(null, made) }],
      },
      ...others.map(
        (other): AuditEntry => ({
          event: 'rootKey.update',
          description: `disabled operator root key ${other.id}, which ${id} replaces`,
          resources: [
            {
              type: 'rootKey',
              id: other.id,
              ...changesOf(fieldsOf(other), fieldsOf({ ...other, enabled: false })),
            },
          ],
        }),
      ),
    ]
    await audit(tx, { workspaceId, rootKeyId: id, location: null, userAgent: by }, entries)
    invalidate(hash, ...disabled)
    save(secret)
    return { id, secret, disabled }
  })
}
