import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { AnySql } from '../../src/db/connect.ts'
import { WORKSPACE_BOUNDS } from '../../src/lib/workspace-bounds.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { findKeysByHash } from '../../src/verify/store.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const { rolesPerKey, permissionsPerKey, permissionBytesPerKey, permissionBytesPerRole } = WORKSPACE_BOUNDS
/** Together with those held directly, all permissions that a workspace may have. */
const PERMISSIONS_PER_ROLE = Math.floor((10_000 - permissionsPerKey.value) / rolesPerKey.value)
const FULL_KEYS = 40

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

/** Slugs of at most `bytes` together. */
const slugsOf = (prefix: string, count: number, bytes: number) =>
  Array.from({ length: count }, (_, i) => `${prefix}.${i}.`.padEnd(Math.floor(bytes / count), 'x'))

/** Keys as heavy as the bounds allow. The first is created by the API; the others are copies that were never read. */
async function makeFullKeys(workspace: TestWorkspace, apiId: string, count: number): Promise<string[]> {
  const roles = Array.from({ length: rolesPerKey.value }, (_, i) => `role.${i}`)
  for (const role of roles) {
    const { roleId } = await workspace.post('permissions.createRole', { name: role })
    await workspace.post('permissions.setRolePermissions', {
      roleId,
      permissions: slugsOf(role, PERMISSIONS_PER_ROLE, permissionBytesPerRole.value).map((slug) => ({
        slug,
        create: true,
      })),
    })
  }
  const { keyId, key } = await makeKey(workspace, apiId, { roles })
  await workspace.post('keys.addPermissions', {
    keyId,
    permissions: slugsOf('own', permissionsPerKey.value, permissionBytesPerKey.value).map((slug) => ({
      slug,
      create: true,
    })),
  })
  await copyKey(server.server.deps.sql, { keyId, copies: count - 1 })
  const copies = Array.from({ length: count - 1 }, (_, i) => `${keyId} ${i}`)
  const hashes = copies.map(hashKey)
  await server.server.deps.sql`
    update keys k set hash = c.hash
      from unnest(${copies}::text[], ${hashes}::text[]) as c (copy, hash)
     where k.hash = c.copy`
  return [key, ...copies]
}

async function copyKey(sql: AnySql, { keyId, copies }: { keyId: string; copies: number }): Promise<void> {
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, enabled, created_at)
    select id || '_' || number, workspace_id, keyspace_id, id || ' ' || number, start, enabled, created_at
      from keys cross join generate_series(0, ${copies}::integer - 1) as number where id = ${keyId}`
  await sql`
    insert into keys_roles (key_id, role_id, workspace_id, created_at)
    select key_id || '_' || number, role_id, workspace_id, created_at
      from keys_roles cross join generate_series(0, ${copies}::integer - 1) as number where key_id = ${keyId}`
  await sql`
    insert into keys_permissions (key_id, permission_id, workspace_id, created_at)
    select key_id || '_' || number, permission_id, workspace_id, created_at
      from keys_permissions cross join generate_series(0, ${copies}::integer - 1) as number where key_id = ${keyId}`
}

const verify = (key: string) => server.post('keys.verifyKey', { key }, null)

test.if(IS_NIGHTLY)(
  'large keys of one workspace, verified together, do not keep other workspaces’ keys from being answered',
  async () => {
    const [large, other] = [await server.workspace(), await server.workspace()]
    const apiId = await makeApi(large)
    const full = await makeFullKeys(large, apiId, FULL_KEYS)
    const [firstFull = ''] = full
    const { key: small } = await makeKey(other, await makeApi(other))

    const { sql } = server.server.deps
    const smallHash = hashKey(small)
    const read = await findKeysByHash(sql, [...full.map(hashKey), smallHash])
    expect([read.found.has(smallHash), read.found.size, read.heavy.size]).toEqual([true, 1, FULL_KEYS])
    expect(read.heavy.get(hashKey(firstFull))).toEqual({
      workspaceId: large.workspaceId,
      weight: expect.any(Number),
    })

    const order: string[] = []
    const answers = await Promise.all(
      [...full, small].map(async (key) => {
        const answer = await verify(key)
        order.push(key)
        return answer
      }),
    )
    expect(answers.map(({ status, body }) => [status, body.code])).toEqual(answers.map(() => [200, 'VALID']))
    expect(order.indexOf(small)).toBeLessThan(10) // not after the keys of the other workspace

    const first = answers[0]?.body
    expect(first.permissions).toHaveLength(rolesPerKey.value * PERMISSIONS_PER_ROLE + permissionsPerKey.value)
    const bytes = JSON.stringify(first).length
    expect(bytes).toBeGreaterThan(860_000)
    expect(bytes).toBeLessThan(960_000)

    // They are cached as far as there is room.
    const { cache } = server.server.deps.keys
    const { misses } = cache
    const latest = order.filter((key) => key !== small).at(-1) ?? ''
    expect((await verify(latest)).body.code).toBe('VALID')
    expect(cache.misses).toBe(misses)

    // The list ends its pages early, and no key is missing.
    const listed: string[] = []
    for (let cursor: string | undefined = '', pages = 0; cursor !== undefined && pages < FULL_KEYS; pages++) {
      const page = await large.get('apis.listKeys', { apiId, ...(cursor === '' ? {} : { cursor }) })
      expect(page.keys.length).toBeLessThan(5)
      expect(page.keys[0].permissions).toHaveLength(first.permissions.length)
      listed.push(...page.keys.map(({ id }: { id: string }) => id))
      cursor = page.cursor
    }
    expect(new Set(listed).size).toBe(FULL_KEYS)
  },
)
