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

/** The data key that seals new keys of the workspace; null = it has none yet. */
export async function findDataKey(sql: AnySql, workspaceId: WorkspaceId): Promise<SealedDataKey | null> {
  const [row] = await sql<SealedDataKey[]>`
    select id, sealed, master_key_id as "vaultKeyId" from vault_data_keys where workspace_id = ${workspaceId}`
  return row ?? null
}

/** All data keys that sealed keys of the workspace. One that is lost opens again when its vault key is found. */
export async function findDataKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
): Promise<(SealedDataKey & { isLost: boolean })[]> {
  return await sql<(SealedDataKey & { isLost: boolean })[]>`
    select id, sealed, master_key_id as "vaultKeyId", false as "isLost"
      from vault_data_keys where workspace_id = ${workspaceId}
     union all
    select id, sealed, vault_key_id, true from vault_lost_data_keys where workspace_id = ${workspaceId}`
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

/**
 * Locks and returns the data keys of all workspaces that another vault key sealed, those put aside as lost included. For the
 * operator's command.
 */
export async function findDataKeysNotSealedBy(
  sql: AnySql,
  vaultKeyId: string,
): Promise<(SealedDataKey & { workspaceId: string; isLost: boolean })[]> {
  type Row = SealedDataKey & { workspaceId: string; isLost: boolean }
  const found = await sql<Row[]>`
    select id, workspace_id as "workspaceId", sealed, master_key_id as "vaultKeyId", false as "isLost" from vault_data_keys
     where master_key_id <> ${vaultKeyId} order by id for update`
  const lost = await sql<Row[]>`
    select id, workspace_id as "workspaceId", sealed, vault_key_id as "vaultKeyId", true as "isLost" from vault_lost_data_keys
     where vault_key_id <> ${vaultKeyId} order by id for update`
  return [...found, ...lost]
}

/** Without those that only a lost vault key opens. @param vaultKeyIds Of this server. */
export async function countDataKeys(sql: AnySql, vaultKeyIds: readonly string[]): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select ((select count(*) from vault_data_keys)
          + (select count(*) from vault_lost_data_keys where vault_key_id = any(${vaultKeyIds as string[]}::text[])))::integer as total`
  return row?.total ?? 0
}

export async function changeSealedDataKeys(
  sql: AnySql,
  keys: readonly SealedDataKey[],
  now: number,
): Promise<void> {
  const columns = [
    keys.map(({ id }) => id),
    keys.map(({ sealed }) => sealed),
    keys.map(({ vaultKeyId }) => vaultKeyId),
  ] as const
  await sql`
    update vault_data_keys d set sealed = k.sealed, master_key_id = k.vault_key_id, updated_at = ${now}
      from unnest(${columns[0]}::text[], ${columns[1]}::text[], ${columns[2]}::text[]) as k (id, sealed, vault_key_id)
     where d.id = k.id`
  await sql`
    update vault_lost_data_keys d set sealed = k.sealed, vault_key_id = k.vault_key_id
      from unnest(${columns[0]}::text[], ${columns[1]}::text[], ${columns[2]}::text[]) as k (id, sealed, vault_key_id)
     where d.id = k.id`
}

/** One data key of each vault key. */
export async function findDataKeySamples(sql: AnySql): Promise<(SealedDataKey & { workspaceId: string })[]> {
  return await sql<(SealedDataKey & { workspaceId: string })[]>`
    select distinct on (master_key_id) id, workspace_id as "workspaceId", sealed, master_key_id as "vaultKeyId"
      from vault_data_keys order by master_key_id, id`
}

/** Puts the data keys of all other vault keys aside. @returns how many. */
export async function loseDataKeys(
  sql: AnySql,
  vaultKeyIds: readonly string[],
  now: number,
): Promise<number> {
  const { count } = await sql`
    with gone as (
      delete from vault_data_keys where master_key_id <> all(${vaultKeyIds as string[]}::text[])
      returning id, workspace_id, sealed, master_key_id, created_at
    )
    insert into vault_lost_data_keys (id, workspace_id, sealed, vault_key_id, created_at, lost_at)
    select id, workspace_id, sealed, master_key_id, created_at, ${now} from gone`
  return count
}

/** The sealed text that tells whether a vault key is the right one; see `admit.ts`. */
export type SealedCheck = { sealed: string; vaultKeyId: string }

export async function findCheck(sql: AnySql): Promise<SealedCheck | null> {
  const [row] = await sql<SealedCheck[]>`select sealed, vault_key_id as "vaultKeyId" from vault_check`
  return row ?? null
}

export async function putCheck(sql: AnySql, { sealed, vaultKeyId }: SealedCheck, now: number): Promise<void> {
  await sql`
    insert into vault_check (sealed, vault_key_id, created_at) values (${sealed}, ${vaultKeyId}, ${now})
    on conflict (is_only) do update
      set sealed = excluded.sealed, vault_key_id = excluded.vault_key_id, updated_at = excluded.created_at`
}

/** False before sql/0047. */
export async function hasCheckTable(sql: AnySql): Promise<boolean> {
  const [row] = await sql<{ isThere: boolean }[]>`select to_regclass('vault_check') is not null as "isThere"`
  return row?.isThere === true
}
