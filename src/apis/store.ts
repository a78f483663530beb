import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

export type ApiRow = {
  id: string
  workspaceId: string
  name: string
  deleteProtection: boolean
  /** Null on an API that holds no keys. */
  keyspaceId: string | null
  storeEncryptedKeys: boolean
  defaultPrefix: string | null
  defaultBytes: number
}

/** A live API with its keyspace's settings; null when absent, deleted or of another workspace. */
export async function findApi(sql: AnySql, workspaceId: WorkspaceId, apiId: string): Promise<ApiRow | null> {
  const [row] = await sql<ApiRow[]>`
    select a.id, a.workspace_id as "workspaceId", a.name, a.delete_protection as "deleteProtection",
           s.id as "keyspaceId", coalesce(s.store_encrypted_keys, false) as "storeEncryptedKeys",
           s.default_prefix as "defaultPrefix", coalesce(s.default_bytes, 16) as "defaultBytes"
      from apis a
      left join keyspaces s on s.id = a.keyspace_id and s.deleted_at is null
     where a.workspace_id = ${workspaceId} and a.id = ${apiId} and a.deleted_at is null`
  return row ?? null
}

/** An API and the keyspace its keys live in. */
export async function insertApi(
  sql: AnySql,
  {
    id,
    keyspaceId,
    workspaceId,
    name,
    now,
  }: { id: string; keyspaceId: string; workspaceId: WorkspaceId; name: string; now: number },
): Promise<void> {
  await sql`
    with keyspace as (
      insert into keyspaces (id, workspace_id, created_at) values (${keyspaceId}, ${workspaceId}, ${now}) returning id
    )
    insert into apis (id, workspace_id, name, keyspace_id, created_at)
    select ${id}, ${workspaceId}, ${name}, keyspace.id, ${now} from keyspace`
}
