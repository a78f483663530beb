import type { Json, TestServer, TestWorkspace } from '../../../support/server.ts'
import { callV2, dataOf } from '../common-cases.ts'

export type Fixture = TestWorkspace & { apiId: string }

export async function makeFixture(server: TestServer): Promise<Fixture> {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'fixture' })
  return { ...workspace, apiId }
}

export type Limit = { name: string; limit: number; durationMs?: number; autoApply?: boolean }

/** Ids rise, as those of the server do. */
let made = 0

/** Gives a key or an identity a limit. Before its first verification: caches are not told. @returns the limit's id. */
export async function addLimit(
  { server }: TestServer,
  owner: { keyId: string } | { identityId: string },
  { name, limit, durationMs = 600_000, autoApply = true }: Limit,
): Promise<string> {
  const [keyId, identityId] = 'keyId' in owner ? [owner.keyId, null] : [null, owner.identityId]
  const id = `rl_test_${String(++made).padStart(8, '0')}`
  await server.deps.sql`
    insert into ratelimits (id, workspace_id, name, key_id, identity_id, "limit", duration_ms, auto_apply, created_at)
    select ${id}, workspace_id, ${name}, ${keyId}, ${identityId}, ${limit}, ${durationMs}, ${autoApply}, 0
      from (select id, workspace_id from keys union all select id, workspace_id from identities) as owners
     where id = ${keyId ?? identityId}`
  return id
}

/** `data` of `keys.verifyKey`. */
export const verify = (
  server: TestServer,
  { rootKey }: { rootKey: string },
  key: string,
  body: Json = {},
  headers: Record<string, string> = {},
): Promise<Json> => dataOf(callV2(server, 'keys.verifyKey', { key, ...body }, rootKey, headers))
