import { findOperatorKeyByHash, hasOperatorKey, insertRootKey } from '../api/root-keys/store.ts'
import { insertWorkspace } from '../api/workspaces/store.ts'
import { ConfigError } from '../config.ts'
import { setBounds } from '../db/bounds.ts'
import type { Sql, Transaction } from '../db/connect.ts'
import { databaseIdOnce, lockStart, settingOnce } from '../db/settings.ts'
import { newId } from '../lib/ids.ts'
import type { Bounds } from '../lib/workspace-bounds.ts'
import { hashKey, makeRootSecret } from '../verify/secret.ts'

export type Bootstrap = {
  /** Keys the hash of the limiter's counters. The same for all processes on this database. */
  hashSecret: string
  /** Distinguishes this database from another one at the same address. */
  databaseId: string
  /**
   * Whether the key file holds an operator root key of this database: written by this start, by an earlier one, or not at
   * all.
   */
  keyFile: 'new' | 'found' | null
}

/**
 * Creates what every start needs, once for each database even with concurrent starts: the workspace `default`, its operator
 * root key and the limiter's secret.
 * @param options.rootKey Text to register as operator root key; null = one from the key file, unless one exists.
 * @param options.keyFile Reads the key file, creating it with the given text if it is missing.
 * @param options.foundKey Text of the key file; null = it is missing.
 * @throws ConfigError when the text cannot be an operator root key.
 */
export async function bootstrap(
  sql: Sql,
  options: {
    rootKey: string | null
    keyFile: (make: () => string) => string
    foundKey: () => string | null
    bounds: Bounds
    now: number
  },
): Promise<Bootstrap> {
  return await sql.begin(async (tx) => {
    await lockStart(tx)
    await setBounds(tx, options.bounds)
    const databaseId = await databaseIdOnce(tx)
    const hashSecret = await settingOnce(tx, 'limiter_hash_secret', randomHex(32))
    const workspaceId = await settingOnce(tx, 'default_workspace_id', newId('ws'))
    await insertWorkspace(tx, { id: workspaceId, name: 'default', now: options.now })
    if (options.rootKey !== null) {
      await registerOperatorKey(tx, options.rootKey, workspaceId, options.now)
      return { hashSecret, databaseId, keyFile: null }
    }
    if (await hasOperatorKey(tx)) {
      const text = options.foundKey()
      const known = text === null ? null : await findOperatorKeyByHash(tx, hashKey(text))
      const isThere = known?.isOperator === true && !known.isDeleted
      return { hashSecret, databaseId, keyFile: isThere ? 'found' : null }
    }
    // The file first: if the process dies now, the next start registers the key in the file.
    const text = options.keyFile(() => makeRootSecret().key)
    await registerOperatorKey(tx, text, workspaceId, options.now)
    return { hashSecret, databaseId, keyFile: 'new' }
  })
}

async function registerOperatorKey(
  tx: Transaction,
  text: string,
  workspaceId: string,
  now: number,
): Promise<void> {
  const hash = hashKey(text)
  const known = await findOperatorKeyByHash(tx, hash)
  if (known?.isOperator && !known.isDeleted) return
  if (known !== null) {
    const why = known.isDeleted ? 'was deleted' : 'belongs to another key'
    throw new ConfigError(
      `TOLLGATE_ROOT_KEY is a text that ${why}; it must be one that this database has never seen`,
    )
  }
  await insertRootKey(tx, {
    id: newId('key'),
    hash,
    start: text.slice(0, Math.min(13, text.length - 12)),
    name: 'operator root key',
    forWorkspaceId: workspaceId,
    permissions: ['*'],
    isOperator: true,
    expiresAt: null,
    grantedBy: null,
    now,
  })
}

const randomHex = (bytes: number) =>
  Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString('hex')
