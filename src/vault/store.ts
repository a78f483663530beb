import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** Stores the encrypted texts of recoverable keys. */
export async function insertEncryptedKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keys: readonly { keyId: string; ciphertext: string; encryptionKeyId: string }[],
  now: number,
): Promise<void> {
  if (keys.length === 0) return
  await sql`
    insert into encrypted_keys (key_id, workspace_id, ciphertext, encryption_key_id, created_at)
    select e.key_id, ${workspaceId}, e.ciphertext, e.encryption_key_id, ${now}
      from unnest(${keys.map(({ keyId }) => keyId)}::text[], ${keys.map(({ ciphertext }) => ciphertext)}::text[],
                  ${keys.map(({ encryptionKeyId }) => encryptionKeyId)}::text[])
        as e (key_id, ciphertext, encryption_key_id)`
}

/** A stored data key; see `vault.ts`. */
export type SealedDataKey = { id: string; sealed: string; vaultKeyId: string }

/** The workspace's data key; null = it has none yet. */
export async function findDataKey(sql: AnySql, workspaceId: WorkspaceId): Promise<SealedDataKey | null> {
  const [row] = await sql<SealedDataKey[]>`
    select id, sealed, master_key_id as "vaultKeyId" from vault_data_keys where workspace_id = ${workspaceId}`
  return row ?? null
}

/** Of two inserts at once, the first stays. */
export async function insertDataKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { id, sealed, vaultKeyId }: SealedDataKey,
  now: number,
): Promise<void> {
  await sql`
    insert into vault_data_keys (id, workspace_id, sealed, master_key_id, created_at)
    values (${id}, ${workspaceId}, ${sealed}, ${vaultKeyId}, ${now})
    on conflict (workspace_id) do nothing`
}

/** Locks and returns the data keys of all workspaces that another vault key sealed. For the operator's command. */
export async function findDataKeysNotSealedBy(
  sql: AnySql,
  vaultKeyId: string,
): Promise<(SealedDataKey & { workspaceId: string })[]> {
  return await sql<(SealedDataKey & { workspaceId: string })[]>`
    select id, workspace_id as "workspaceId", sealed, master_key_id as "vaultKeyId" from vault_data_keys
     where master_key_id <> ${vaultKeyId} order by id for update`
}

export async function countDataKeys(sql: AnySql): Promise<number> {
  const [row] = await sql<{ total: number }[]>`select count(*)::integer as total from vault_data_keys`
  return row?.total ?? 0
}

export async function changeSealedDataKeys(
  sql: AnySql,
  keys: readonly SealedDataKey[],
  now: number,
): Promise<void> {
  await sql`
    update vault_data_keys d set sealed = k.sealed, master_key_id = k.master_key_id, updated_at = ${now}
      from unnest(${keys.map(({ id }) => id)}::text[], ${keys.map(({ sealed }) => sealed)}::text[],
                  ${keys.map(({ vaultKeyId }) => vaultKeyId)}::text[]) as k (id, sealed, master_key_id)
     where d.id = k.id`
}
