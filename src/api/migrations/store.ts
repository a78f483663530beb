import type { AnySql } from '../../db/connect.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { SealedKey } from '../../vault/vault.ts'
import type { ImportedKey } from './imports.ts'

/** Those of these hashes that a key has, in any workspace, deleted keys included. */
export async function findTakenHashes(sql: AnySql, hashes: readonly string[]): Promise<string[]> {
  const rows = await sql<{ hash: string }[]>`
    select hash from keys where hash = any(${hashes as string[]}::text[])`
  return rows.map(({ hash }) => hash)
}

/** A row of the queue: a key, and who enqueued it. */
export type KeyImportRow = {
  id: number
  workspaceId: WorkspaceId
  rootKeyId: string
  location: string | null
  userAgent: string | null
  apiId: string
  key: ImportedKey
  /** The encrypted text, if the text was sent. */
  sealed: SealedKey | null
  /** Failed attempts so far. */
  attempts: number
}

export async function insertKeyImports(
  sql: AnySql,
  actor: Pick<KeyImportRow, 'workspaceId' | 'rootKeyId' | 'location' | 'userAgent'>,
  imports: readonly (Pick<KeyImportRow, 'apiId' | 'key' | 'sealed'> & { migrationId: string })[],
  now: number,
): Promise<void> {
  const rows = imports.map(({ migrationId, apiId, key, sealed }) => ({
    migration_id: migrationId,
    api_id: apiId,
    key_id: key.id,
    key: JSON.stringify(key),
    ciphertext: sealed?.ciphertext ?? null,
    encryption_key_id: sealed?.encryptionKeyId ?? null,
  }))
  await sql`
    insert into key_imports (workspace_id, migration_id, api_id, key_id, key, ciphertext, encryption_key_id, actor_id,
                             location, user_agent, next_at, created_at)
    select ${actor.workspaceId}, i.migration_id, i.api_id, i.key_id, i.key, i.ciphertext, i.encryption_key_id,
           ${actor.rootKeyId}, ${actor.location}, ${actor.userAgent}, ${now}, ${now}
      from json_to_recordset((${JSON.stringify(rows)}::text)::json)
        as i (migration_id text, api_id text, key_id text, key text, ciphertext text, encryption_key_id text)`
}

/**
 * The oldest due rows, an equal share for each workspace: a million keys of one workspace do not delay the others. Skips
 * rows that another server has locked.
 */
export async function findDueKeyImports(
  sql: AnySql,
  { now, limit }: { now: number; limit: number },
): Promise<number[]> {
  const rows = await sql<{ id: number }[]>`
    with recursive waiting as (
      (select workspace_id from key_imports
        where failed_at is null and next_at <= ${now} order by workspace_id limit 1)
      union all
      select next.workspace_id
        from waiting
       cross join lateral (select i.workspace_id from key_imports i
                            where i.failed_at is null and i.next_at <= ${now} and i.workspace_id > waiting.workspace_id
                            order by i.workspace_id limit 1) as next
    )
    select due.id
      from (select workspace_id from waiting order by random() limit ${limit}) as chosen
     cross join lateral (select i.id from key_imports i
                          where i.workspace_id = chosen.workspace_id and i.failed_at is null and i.next_at <= ${now}
                          order by i.next_at, i.id
                          limit greatest(1, ${limit} / (select count(*) from waiting))
                            for update skip locked) as due`
  return rows.map(({ id }) => id)
}

/** When the next row is due, Unix ms; null = the queue is empty. */
export async function findNextKeyImport(sql: AnySql): Promise<number | null> {
  const [row] = await sql<{ at: number | null }[]>`
    select min(next_at) as at from key_imports where failed_at is null`
  return row?.at ?? null
}

/** Locks the rows that are still due until the transaction ends, skipping locked ones. */
export async function claimKeyImports(
  tx: AnySql,
  { ids, now }: { ids: readonly number[]; now: number },
): Promise<KeyImportRow[]> {
  type Row = Omit<KeyImportRow, 'key' | 'sealed'> & {
    key: string
    ciphertext: string | null
    encryptionKeyId: string | null
  }
  const rows = await tx<Row[]>`
    select id, workspace_id as "workspaceId", actor_id as "rootKeyId", location, user_agent as "userAgent",
           api_id as "apiId", key, ciphertext, encryption_key_id as "encryptionKeyId", attempts
      from key_imports
     where id = any(${ids as number[]}::bigint[]) and failed_at is null and next_at <= ${now}
     order by id for update skip locked`
  return rows.map(({ ciphertext, encryptionKeyId, ...row }) => {
    const key: ImportedKey = JSON.parse(row.key) // written by insertKeyImports
    const sealed =
      ciphertext === null || encryptionKeyId === null ? null : { keyId: key.id, ciphertext, encryptionKeyId }
    return { ...row, key, sealed }
  })
}

export async function deleteKeyImports(tx: AnySql, ids: readonly number[]): Promise<void> {
  if (ids.length === 0) return
  await tx`delete from key_imports where id = any(${ids as number[]}::bigint[])`
}

/** Postpones failed rows, or keeps them for good. */
export async function failKeyImports(
  tx: AnySql,
  failures: readonly { id: number; attempts: number; reason: string; nextAt: number; isFinal: boolean }[],
  now: number,
): Promise<void> {
  if (failures.length === 0) return
  await tx`
    update key_imports i
       set attempts = f.attempts, reason = f.reason, next_at = f."nextAt",
           failed_at = case when f."isFinal" then ${now}::bigint end
      from json_to_recordset((${JSON.stringify(failures)}::text)::json)
        as f (id bigint, attempts integer, reason text, "nextAt" bigint, "isFinal" boolean)
     where i.id = f.id`
}

/** A queued key that was given up. */
export type FailedImportRow = HandledImport & {
  apiId: string
  start: string
  name: string | null
  reason: string
  attempts: number
  createdAt: number
  failedAt: number
}
/** `id` is a number of any size, as text. */
export type HandledImport = { id: string; keyId: string; migrationId: string }

/** By id, behind `after`, up to `rows`. */
export async function listFailedImports(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { after, rows }: { after: string; rows: number },
): Promise<FailedImportRow[]> {
  return await sql<FailedImportRow[]>`
    select id::text, key_id as "keyId", migration_id as "migrationId", api_id as "apiId", key::jsonb ->> 'start' as start,
           key::jsonb ->> 'name' as name, coalesce(reason, '') as reason, attempts, created_at as "createdAt",
           failed_at as "failedAt"
      from key_imports
     where workspace_id = ${workspaceId} and failed_at is not null and id > ${after === '' ? '0' : after}::bigint
     order by workspace_id, id limit ${rows}`
}

/** Imports of a workspace that wait and that were given up, each at most `max`. */
export async function countKeyImports(
  sql: AnySql,
  workspaceId: WorkspaceId,
  max: number,
): Promise<{ waiting: number; failed: number }> {
  const [row] = await sql<{ waiting: number; failed: number }[]>`
    select (select count(*)::integer from (select 1 from key_imports
             where workspace_id = ${workspaceId} and failed_at is null limit ${max}) as w) as waiting,
           (select count(*)::integer from (select 1 from key_imports
             where workspace_id = ${workspaceId} and failed_at is not null limit ${max}) as f) as failed`
  return row ?? { waiting: 0, failed: 0 }
}

export async function retryFailedImports(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { ids, now }: { ids: readonly string[]; now: number },
): Promise<HandledImport[]> {
  return await tx<HandledImport[]>`
    update key_imports set failed_at = null, attempts = 0, next_at = ${now}
     where id in (select id from key_imports
                   where workspace_id = ${workspaceId} and failed_at is not null and id = any(${ids as string[]}::bigint[])
                   order by id for update)
 returning id::text, key_id as "keyId", migration_id as "migrationId"`
}

export async function discardFailedImports(
  tx: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<HandledImport[]> {
  return await tx<HandledImport[]>`
    delete from key_imports
     where id in (select id from key_imports
                   where workspace_id = ${workspaceId} and failed_at is not null and id = any(${ids as string[]}::bigint[])
                   order by id for update)
 returning id::text, key_id as "keyId", migration_id as "migrationId"`
}
