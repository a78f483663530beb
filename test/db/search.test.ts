import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { findPage, ROWS_MAX, SLICE_ROWS } from '../../src/db/search.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  await database.sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0), ('ws_2', 'two', 0)`
})
afterAll(async () => await database[Symbol.asyncDispose]())

const list = (workspaceId: string) => ({
  table: 'permissions',
  of: { workspace_id: workspaceId },
  columns: ['id', 'name', 'slug', 'description'],
})
const find = (text: string, page: { limit?: number; cursor?: string } = {}) =>
  findPage(database.sql, list('ws_1'), { limit: 100, cursor: '', ...page }, text)

describe('a search', () => {
  beforeAll(async () => {
    const rows = [
      { id: 'perm_a', workspaceId: 'ws_1', name: 'Read Documents', slug: 'docs.read', description: null },
      { id: 'perm_b', workspaceId: 'ws_1', name: 'Write', slug: 'docs.write', description: '100% of_all\\' },
      { id: 'perm_c', workspaceId: 'ws_1', name: 'Élan', slug: 'other', description: 'a\nb' },
      { id: 'perm_z', workspaceId: 'ws_2', name: 'Read Documents', slug: 'docs.read', description: null },
    ]
    for (const { id, workspaceId, name, slug, description } of rows)
      await database.sql`
        insert into permissions (id, workspace_id, name, slug, description, created_at)
        values (${id}, ${workspaceId}, ${name}, ${slug}, ${description}, 0)`
  })

  test.each([
    ['part of a name', 'ad Doc', ['perm_a']],
    ['in another letter case', 'READ dOCUMENTS', ['perm_a']],
    ['part of a slug', 'docs.', ['perm_a', 'perm_b']],
    ['part of an id', 'M_C', ['perm_c']],
    ['part of a description', 'of_all', ['perm_b']],
    ['a percent sign', '%', ['perm_b']],
    ['an underscore', '_all', ['perm_b']],
    ['an underscore that would stand for any character', 'docs_', []],
    ['a backslash', '\\', ['perm_b']],
    ['a line end, not across two columns', '\n', ['perm_c']],
    ['nothing that is there', 'nothing', []],
    ['nothing at all', '', ['perm_a', 'perm_b', 'perm_c']],
  ])('finds %s, in its workspace only', async (_, text, ids) => {
    expect(await find(text)).toEqual({ ids, next: null })
  })

  test('gives where the next page begins only when more follow', async () => {
    expect(await find('docs', { limit: 1 })).toEqual({ ids: ['perm_a'], next: 'perm_a' })
    expect(await find('docs', { limit: 1, cursor: 'perm_a' })).toEqual({ ids: ['perm_b'], next: null })
    expect(await find('docs', { limit: 2 })).toEqual({ ids: ['perm_a', 'perm_b'], next: null })
    expect(await find('', { limit: 2 })).toEqual({ ids: ['perm_a', 'perm_b'], next: 'perm_b' })
    expect(await find('docs', { cursor: 'perm_b' })).toEqual({ ids: [], next: null })
  })
})

describe('a search among many', () => {
  const ROWS = 2 * ROWS_MAX + 10
  const manyList = { table: 'identities', of: { workspace_id: 'ws_2' }, columns: ['id', 'external_id'] }
  const idAt = (n: number) => `id_${String(n).padStart(7, '0')}`
  beforeAll(async () => {
    await database.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`
      await tx`
        insert into identities (id, workspace_id, external_id, created_at)
        select 'id_' || lpad(n::text, 7, '0'), 'ws_2', case when n in (5, ${ROWS}) then 'rare ' || n else 'user ' || n end, 0
          from generate_series(1, ${ROWS}::integer) as n`
    })
  })
  const findMany = (text: string, cursor = '', now = () => 0) =>
    findPage(database.sql, manyList, { limit: 100, cursor }, text, { now })

  /** So a search costs the same however many rows there are, and holds nobody up. */
  test('ends a page after a fixed number of rows, and the next pages go on from there until all are found', async () => {
    const pages: { ids: string[]; next: string | null }[] = []
    for (let cursor: string | null = ''; cursor !== null; cursor = pages.at(-1)?.next ?? null)
      pages.push(await findMany('RARE', cursor))
    expect(pages).toEqual([
      { ids: [idAt(5)], next: idAt(ROWS_MAX) },
      { ids: [], next: idAt(2 * ROWS_MAX) },
      { ids: [idAt(ROWS)], next: null },
    ])
  })

  test('ends a page sooner where the database is slow, after one statement at least', async () => {
    let now = 0
    const slow = () => (now += 300)
    expect(await findMany('rare', '', slow)).toEqual({ ids: [idAt(5)], next: idAt(2 * SLICE_ROWS) })
    const frozen = () => (now += 10_000)
    expect(await findMany('rare', '', frozen)).toEqual({ ids: [idAt(5)], next: idAt(SLICE_ROWS) })
  })

  test('reads no more than it needs to fill the page', async () => {
    const { ids, next } = await findMany('user')
    expect([ids.length, ids.at(-1), next]).toEqual([100, idAt(101), idAt(101)])
  })
})
