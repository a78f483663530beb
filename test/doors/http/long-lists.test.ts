import { expect, setDefaultTimeout, test } from 'bun:test'
import { listAnswer } from '../../../src/doors/http/answer.ts'
import type { Envelope } from '../../../src/doors/http/dialect.ts'
import { type Json, startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const envelope = (isPretty: boolean): Envelope => ({
  requestId: 'req_1',
  startedAt: performance.now(),
  addedHeaders: null,
  isCrossOrigin: false,
  path: '/v1/liveness',
  accept: null,
  isApi: true,
  isPretty,
  publicUrl: '',
  trace: null,
})

test.each([false, true])(
  'a list written in slices reads as if written at once (pretty: %p)',
  async (isPretty) => {
    for (const items of [1, 19, 20, 21, 1_001]) {
      const list = Array.from({ length: items }, (_, at) => ({
        id: `perm_${at}`,
        name: 'Ä "quoted"\n',
        tags: [at],
      }))
      const { text } = await listAnswer(envelope(isPretty), 200, list)
      expect(text.toString()).toBe(JSON.stringify(list, null, isPretty ? 2 : 0))
    }
  },
)

/** Bug: ten thousand permissions with long descriptions held the thread for 40 ms and more. */
test('others have their turn while a long list is written', async () => {
  const list = Array.from({ length: 10_000 }, (_, at) => ({
    id: `perm_${at}`,
    description: 'ä'.repeat(2_000),
  }))
  let turns = 0
  const take = () => {
    turns++
    timer = setImmediate(take)
  }
  let timer = setImmediate(take)
  await listAnswer(envelope(false), 200, list)
  clearImmediate(timer)
  expect(turns).toBeGreaterThan(5)
})

test('all permissions and roles of a workspace come in one answer, by id', async () => {
  await using server = await startTestServer()
  const workspace = await server.workspace()
  const sql = server.server.deps.sql
  await sql`
    insert into permissions (id, workspace_id, name, slug, description, created_at)
    select 'perm_' || lpad(n::text, 5, '0'), ${workspace.workspaceId}, 'name ' || n, 'slug.' || n, 'ä ' || n, 0
      from generate_series(1, 2500) as n`
  await sql`
    insert into roles (id, workspace_id, name, created_at)
    select 'role_' || lpad(n::text, 5, '0'), ${workspace.workspaceId}, 'name ' || n, 0 from generate_series(1, 1001) as n`
  const permissions: Json[] = await workspace.get('permissions.listPermissions')
  expect(permissions).toHaveLength(2_500)
  expect(permissions[2_499]).toEqual({
    id: 'perm_02500',
    name: 'name 2500',
    slug: 'slug.2500',
    description: 'ä 2500',
  })
  const roles: Json[] = await workspace.get('permissions.listRoles')
  expect(roles.map(({ id }) => id)).toEqual(roles.map(({ id }) => id).toSorted())
  expect(roles).toHaveLength(1_001)
})
