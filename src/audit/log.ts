import type { AnySql } from '../db/connect.ts'
import { newId, type WorkspaceId } from '../lib/ids.ts'
import type { Changes } from './changes.ts'

export type AuditEventName =
  | 'api.create'
  | 'api.delete'
  | 'api.update'
  | 'authorization.connect_permission_and_key'
  | 'authorization.connect_permission_and_role'
  | 'authorization.connect_role_and_key'
  | 'authorization.disconnect_permission_and_key'
  | 'authorization.disconnect_permission_and_role'
  | 'authorization.disconnect_role_and_key'
  | 'identity.create'
  | 'identity.delete'
  | 'identity.erase'
  | 'identity.update'
  | 'import.discard'
  | 'import.retry'
  | 'key.create'
  | 'key.decrypt'
  | 'key.delete'
  | 'key.erase'
  | 'key.reroll'
  | 'key.update'
  | 'permission.create'
  | 'permission.delete'
  | 'ratelimit.create'
  | 'ratelimit.delete'
  | 'ratelimit.delete_override'
  | 'ratelimit.denied'
  | 'ratelimit.set_override'
  | 'ratelimit.success'
  | 'ratelimit.update'
  | 'ratelimitNamespace.create'
  | 'ratelimitNamespace.delete'
  | 'ratelimitNamespace.update'
  | 'role.create'
  | 'role.delete'
  | 'rootKey.create'
  | 'rootKey.delete'
  | 'rootKey.rescue'
  | 'rootKey.reroll'
  | 'rootKey.update'
  | 'vault.reseal'
  | 'workspace.create'
  | 'workspace.update'

/** `before` and `after` come from `changesOf`, which bounds them. */
export type AuditResource = Changes & {
  type: string
  id: string
  name?: string
  meta?: Record<string, unknown>
}

export type AuditEntry = {
  event: AuditEventName
  /** One sentence for people, without keys or other secrets. */
  description: string
  /** Affected things, the main one first. */
  resources: AuditResource[]
}

/** The root key that acted, with its address and user agent. An `Actor` fits. */
export type AuditActor = {
  workspaceId: WorkspaceId
  rootKeyId: string
  location: string | null
  userAgent: string | null
}

/**
 * Adds audit events inside the caller's transaction, so that they exist exactly when the change does. They are listed in
 * the order of `entries`. One statement for each {@link ENTRIES_MAX}: building a longer one would hold the thread.
 */
export async function audit(tx: AnySql, actor: AuditActor, entries: AuditEntry[]): Promise<void> {
  const now = Date.now()
  for (let from = 0; from < entries.length; from += ENTRIES_MAX)
    await insertEntries(tx, actor, entries.slice(from, from + ENTRIES_MAX), now)
}

/** Takes about 2 ms to build. */
const ENTRIES_MAX = 1_000

async function insertEntries(
  tx: AnySql,
  actor: AuditActor,
  entries: AuditEntry[],
  now: number,
): Promise<void> {
  await tx`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, location,
                              user_agent, occurred_at)
    select e.id, ${actor.workspaceId}, e.event, 'key', ${actor.rootKeyId}, e.resources::jsonb, e.description,
           ${actor.location}, ${actor.userAgent}, ${now}
      from unnest(${entries.map(() => newId('log', now))}::text[], ${entries.map(({ event }) => event)}::text[],
                  ${entries.map(({ resources }) => JSON.stringify(resources))}::text[],
                  ${entries.map(({ description }) => description)}::text[])
        with ordinality as e (id, event, resources, description, number)
     order by e.number`
}

/**
 * Resources of the event for a deleted key, with its owner: the row goes, and an erasure of the owner must still find the
 * event. An owner without an identity is named by the key's owner id.
 */
export function deletedKeyResources(
  id: string,
  apiId: string,
  { identityId, ownerId }: { identityId: string | null; ownerId: string | null },
): AuditResource[] {
  const key: AuditResource = { type: 'key', id }
  const api: AuditResource = { type: 'api', id: apiId }
  if (identityId !== null) return [key, api, { type: 'identity', id: identityId }]
  return [ownerId === null ? key : { ...key, before: { ownerId } }, api]
}

/**
 * The events of many deleted keys, as an insert to be part of a statement whose CTE `deleted` returns their ids and owners.
 * Even for a million keys this process does no work.
 * @param apiId The API of the keys.
 */
export type AuditDeletedKeys = ReturnType<typeof auditDeletedKeys>
export function auditDeletedKeys(sql: AnySql, actor: AuditActor, apiId: string) {
  const now = Date.now()
  return sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, location,
                              user_agent, occurred_at)
    select new_id_like(${newId('log', now)}), ${actor.workspaceId}, 'key.delete', 'key', ${actor.rootKeyId},
           jsonb_build_array(jsonb_build_object('type', 'key', 'id', deleted.id)
                               || case when deleted.identity_id is null and deleted.owner_id is not null
                                       then jsonb_build_object('before', jsonb_build_object('ownerId', deleted.owner_id))
                                       else '{}'::jsonb end,
                             jsonb_build_object('type', 'api', 'id', ${apiId}::text))
             || case when deleted.identity_id is null then '[]'::jsonb
                     else jsonb_build_array(jsonb_build_object('type', 'identity', 'id', deleted.identity_id)) end,
           'deleted key ' || deleted.id || ' of API ' || ${apiId}::text, ${actor.location}, ${actor.userAgent}, ${now}
      from deleted`
}
