import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { countApis, listApiRows } from '../../src/api/apis/store.ts'
import {
  countIdentities,
  identityList,
  listIdentityRows,
  readIdentities,
} from '../../src/api/identities/store.ts'
import { countKeys, type KeyFilter, listKeyRows } from '../../src/api/keys/store.ts'
import {
  listPermissionRows,
  listRoleRows,
  permissionList,
  readPermissions,
  readRoles,
  roleList,
} from '../../src/api/permissions/store.ts'
import {
  countInnerPatterns,
  countNamespaces,
  countOverrides,
  findChanges,
  findNamespaceByName,
  findOverrideRow,
  findOverridesAfter,
  listNamespaceRows,
  listOverrideRows,
} from '../../src/api/ratelimits/store.ts'
import {
  countOtherOperatorKeys,
  countRootKeys,
  hasOperatorKey,
  listRootKeyRows,
} from '../../src/api/root-keys/store.ts'
import { countWorkspaces } from '../../src/api/workspaces/store.ts'
import type { AnySql } from '../../src/db/connect.ts'
import { findPage, type SearchedList, SLICE_ROWS } from '../../src/db/search.ts'
import {
  clearOwnerOfDeleted,
  deleteOverridesOf,
  lockKeysOf,
  revokeSomeKeysOf,
} from '../../src/erasure/store.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { sweepSlice } from '../../src/sweep/store.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { explaining } from '../support/plan.ts'

setDefaultTimeout(300_000)

/** The embedded database takes minutes to hold so much, and has the same planner. */
describe.skipIf(TEST_DATABASE_URL === null)(
  `among ${IS_NIGHTLY ? 'a million' : 'hundreds of thousands of'} rows`,
  () => {
    const workspaceId = 'ws_2' as WorkspaceId // only the statements are tested, without an actor
    /** By day fewer, with the same plans: they take minutes of the database's time. */
    const MILLION = IS_NIGHTLY ? 1_000_000 : 250_000

    let database: TestSql
    /** Keys of `keyspaceId` with numbers from `first` on. Of ten, three belong to an identity and three have an owner. */
    const insertKeys = (
      sql: AnySql,
      keyspaceId: string,
      { first, rows, deletedAt = null }: { first: number; rows: number; deletedAt?: number | null },
    ) => sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, created_at, deleted_at, identity_id, owner_id)
    select 'key_' || lpad(n::text, 7, '0'), ${workspaceId}, ${keyspaceId}, 'hash ' || lpad(n::text, 7, '0'), '', 0, ${deletedAt}::bigint,
           case when n % 10 < 3 then 'id_busy' end, case when n % 10 > 6 then 'busy owner' end
      from generate_series(${first}::integer, ${first + rows - 1}::integer) as n`

    beforeAll(async () => {
      database = await openTestSql()
      // Statistics are made where a test says so, and nothing in the background keeps deleted rows visible.
      await database.sql.unsafe(`
      do $$ declare t regclass; begin
        for t in select oid::regclass from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
          execute format('alter table %s set (autovacuum_enabled = off)', t);
        end loop;
      end $$`)
      await withoutTriggers(fill)
    })
    afterAll(() => database?.[Symbol.asyncDispose]())

    /** Checks of foreign keys and counts would take longer than the rows. */
    const withoutTriggers = (work: (tx: AnySql) => Promise<unknown>) =>
      database.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`
        await work(tx)
      })

    async function fill(sql: AnySql) {
      await sql`
      insert into workspaces (id, name, created_at)
      select 'ws_' || n, 'one', 0 from generate_series(1, 2) as n`
      await sql`
      insert into keyspaces (id, workspace_id, created_at)
      select 'ks_' || n, ${workspaceId}, 0 from generate_series(1, 3) as n`
      await sql`
      insert into apis (id, workspace_id, name, keyspace_id, created_at, deleted_at)
      select 'api_' || lpad(n::text, 6, '0'), ${workspaceId}, 'one', null, 0, 1 from generate_series(1, 200000) as n`
      await sql`
      insert into apis (id, workspace_id, name, keyspace_id, created_at)
      select 'api_late_' || n, ${workspaceId}, 'one', 'ks_' || n, 0 from generate_series(1, 3) as n`
      await sql`
      insert into permissions (id, workspace_id, name, slug, created_at)
      select 'perm_' || lpad(n::text, 6, '0'), case when n < 200000 then 'ws_1' else ${workspaceId} end, 'a', n::text, 0
        from generate_series(1, 200100) as n`
      await sql`
      insert into roles (id, workspace_id, name, created_at)
      select 'role_' || lpad(n::text, 6, '0'), case when n < 200000 then 'ws_1' else ${workspaceId} end, n::text, 0
        from generate_series(1, 200100) as n`
      await sql`
      insert into roles_permissions (role_id, permission_id, workspace_id, created_at)
      select r.id, p.id, r.workspace_id, 0
        from roles r cross join (select id from permissions where workspace_id = ${workspaceId} order by id limit 10) as p
       where r.workspace_id = ${workspaceId} or r.id < 'role_010000'`
      for (const [otherWorkspaceId, first, rows] of [
        ['ws_1', 0, MILLION],
        [workspaceId, MILLION, 150],
      ] as const) {
        await sql`
        insert into identities (id, workspace_id, external_id, created_at)
        select 'id_' || lpad(n::text, 7, '0'), ${otherWorkspaceId}, lpad(n::text, 7, '0'), 0
          from generate_series(${first}::integer, ${first + rows - 1}::integer) as n`
        await sql`
        insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at, revision)
        select 'rlor_' || lpad(n::text, 7, '0'), ${workspaceId}, ${`rlns_of_${otherWorkspaceId}`}, lpad(n::text, 7, '0'), 1, 1000, 0, n
          from generate_series(${first}::integer, ${first + rows - 1}::integer) as n`
        await sql`
        insert into ratelimit_namespaces (id, workspace_id, name, created_at)
        select 'rlns_' || lpad(n::text, 7, '0'), ${otherWorkspaceId}, lpad(n::text, 7, '0'), 0
          from generate_series(${first}::integer, ${first + Math.min(rows, 200_000) - 1}::integer) as n`
      }
      await sql`
      insert into ratelimit_namespaces (id, workspace_id, name, created_at)
      select 'rlns_of_ws_' || n, ${workspaceId}, 'of ws_' || n, 0 from generate_series(1, 2) as n`
      await insertKeys(sql, 'ks_1', { first: 0, rows: MILLION })
      await insertKeys(sql, 'ks_2', { first: MILLION, rows: 20_000, deletedAt: 1 })
      await insertKeys(sql, 'ks_2', { first: MILLION + 20_000, rows: 1_000 })
      await insertKeys(sql, 'ks_3', { first: MILLION + 30_000, rows: 50 })
      for (const [otherWorkspaceId, first, rows] of [
        ['ws_1', 0, 20_000],
        [workspaceId, 20_000, 300],
      ] as const)
        await sql`
        insert into keys (id, workspace_id, keyspace_id, hash, start, for_workspace_id, granted_by, created_at)
        select 'root_' || n, 'ws_root', 'ks_root', 'root hash ' || n, '', ${otherWorkspaceId}, case when n % 2 = 0 then 'root_20000' end, 0
          from generate_series(${first + 100_000}::integer, ${first + 100_000 + rows - 1}::integer) as n`
    }

    const page = { limit: 100, cursor: '' }
    const keyLists: [string, string, KeyFilter | null, string][] = [
      ['the keys of the first API', 'ks_1', null, ''],
      ['from the middle on', 'ks_1', null, `key_${String(MILLION / 2).padStart(7, '0')}`],
      ['the keys of an API made later, behind deleted ones', 'ks_2', null, ''],
      ['the keys of an identity in that API', 'ks_2', { identityId: 'id_busy' }, ''],
      ['the keys of an owner in that API', 'ks_2', { ownerId: 'busy owner' }, ''],
    ]
    const lists: [string, string, (sql: AnySql) => Promise<readonly unknown[]>][] = [
      ['identities', 'identities', (sql) => listIdentityRows(sql, workspaceId, page)],
      ['namespaces', 'ratelimit_namespaces', (sql) => listNamespaceRows(sql, workspaceId, page)],
      [
        'overrides',
        'ratelimit_overrides',
        (sql) => listOverrideRows(sql, workspaceId, `rlns_of_${workspaceId}`, page),
      ],
      ['root keys', 'keys', (sql) => listRootKeyRows(sql, workspaceId, page)],
      [
        'root keys made by one',
        'keys',
        (sql) => listRootKeyRows(sql, workspaceId, { ...page, grantedBy: 'root_20000' }),
      ],
      ['APIs', 'apis', (sql) => listApiRows(sql, workspaceId, page)],
    ]

    /**
     * Reads nothing but the page: each of its keys once for its size, once for its fields. What finds the ids is a function, whose
     * plan is not shown: the pages tell that it reads nothing else.
     */
    async function expectCheapKeys(keyspaceId: string, filter: KeyFilter | null, cursor = '') {
      for (const limits of ['default', 'all'] as const) {
        const wanted = { limit: 100, cursor, limits }
        const { rows } = await listKeyRows(database.sql, workspaceId, keyspaceId, filter, wanted)
        expect(rows).toHaveLength(101)
        const { sql, rowsRead, waysTo, pagesRead } = explaining(database.sql)
        await listKeyRows(sql, workspaceId, keyspaceId, filter, wanted)
        expect(rowsRead('keys')).toBe(202)
        expect(waysTo('keys')).toEqual(['Index Scan keys_pkey'])
        expect(pagesRead()).toBeLessThan(5_000)
      }
    }

    async function expectCheap(table: string, list: (sql: AnySql) => Promise<readonly unknown[]>) {
      const rows = await list(database.sql)
      const { sql, rowsRead, waysTo, pagesRead } = explaining(database.sql)
      await list(sql)
      expect(rowsRead(table)).toBe(rows.length)
      expect(waysTo(table)).toEqual([`Index Scan ${table}_pkey`])
      expect(pagesRead()).toBeLessThan(1_000)
    }

    describe.each(['without statistics', 'with statistics'])('%s', (kind) => {
      beforeAll(async () => {
        if (kind === 'with statistics') await database.sql`vacuum analyze`
      })

      test.each(keyLists)('%s are listed without reading others', async (_, keyspaceId, filter, cursor) => {
        await expectCheapKeys(keyspaceId, filter, cursor)
      })

      test.each(lists)('%s are listed without reading others', async (_, table, list) => {
        await expectCheap(table, list)
      })

      test('all permissions and roles of a workspace are listed without reading others', async () => {
        const { sql, rowsRead } = explaining(database.sql)
        expect(await listPermissionRows(database.sql, workspaceId)).toHaveLength(101)
        await listPermissionRows(sql, workspaceId)
        expect(rowsRead('permissions')).toBe(101)
        await listRoleRows(sql, workspaceId)
        expect(rowsRead('roles')).toBe(101)
      })

      /** Searches of other workspaces must not be paid by this one: `ws_1` has a million identities. */
      const searches: [string, SearchedList, number][] = [
        ['identities among a million', identityList('ws_1' as WorkspaceId), SLICE_ROWS], // as above
        ['identities', identityList(workspaceId), 150],
        ['permissions', permissionList(workspaceId), 101],
        ['roles', roleList(workspaceId), 101],
      ]
      test.each(searches)('a search of %s reads a slice of them, and no others', async (_, list, rows) => {
        const { sql, rowsRead, waysTo, pagesRead } = explaining(database.sql)
        await findPage(sql, list, page, 'nowhere')
        expect(rowsRead(list.table)).toBe(rows)
        expect(waysTo(list.table)).toEqual([`Index Scan ${list.table}_pkey`])
        expect(pagesRead()).toBeLessThan(5 * SLICE_ROWS)
      })

      test('identities with meta, permissions, and roles with permissions are read by their ids', async () => {
        const idsOf = async (list: SearchedList) => (await findPage(database.sql, list, page, '')).ids
        const { sql, rowsRead, pagesRead } = explaining(database.sql)
        for (const [list, read, times] of [
          [identityList(workspaceId), readIdentities, 2],
          [permissionList(workspaceId), readPermissions, 1],
          [roleList(workspaceId), readRoles, 2],
        ] as const) {
          await read(sql, workspaceId, await idsOf(list))
          expect([list.table, rowsRead(list.table)]).toEqual([list.table, 100 * times])
          expect(pagesRead()).toBeLessThan(20_000)
        }
        // Ten of each role for its weight, but the last, and ten for the answer.
        expect([rowsRead('roles_permissions'), rowsRead('permissions')]).toEqual([1990, 1990])
      })

      const overrideReads: [string, (sql: AnySql) => Promise<unknown>][] = [
        ['the first page of a namespace', (sql) => findNamespaceByName(sql, workspaceId, 'of ws_1', 100)],
        ['a small namespace', (sql) => findNamespaceByName(sql, workspaceId, 'of ws_2', 500)],
        ['a later page', (sql) => findOverridesAfter(sql, 'rlns_of_ws_1', 'rlor_0700000', 100)],
        [
          'what changed after a revision',
          (sql) => {
            const namespace = { id: 'rlns_of_ws_1', name: 'of ws_1', revision: 700_000 }
            return findChanges(sql, workspaceId, namespace, 100)
          },
        ],
        ['an override', (sql) => findOverrideRow(sql, workspaceId, 'rlns_of_ws_1', '0700000')],
        ['those of a person without any', (sql) => deleteOverridesOf(sql, workspaceId, ['nobody', 'id_1'])],
        ['patterns with inner text', (sql) => countInnerPatterns(sql, workspaceId, 'rlns_of_ws_1')],
      ]
      /** Functions read what is in order. Their plans are not shown, so the pages tell that they read nothing else. */
      test.each(overrideReads)('of overrides, %s is read without others', async (_, read) => {
        const { sql, rowsRead, pagesRead } = explaining(database.sql)
        await read(sql)
        expect(rowsRead('ratelimit_overrides')).toBeLessThan(2)
        expect(pagesRead()).toBeLessThan(1_000)
      })

      test('totals are read from the counts', async () => {
        const { sql, rowsRead } = explaining(database.sql)
        for (const count of [
          () => countKeys(sql, workspaceId, 'ks_1'),
          () => countRootKeys(sql, workspaceId),
          () => countApis(sql, workspaceId),
          () => countIdentities(sql, workspaceId),
          () => countNamespaces(sql, workspaceId),
          () => countOverrides(sql, workspaceId, `rlns_of_${workspaceId}`),
          () => countWorkspaces(sql),
        ]) {
          await count()
          for (const table of [
            'keys',
            'apis',
            'identities',
            'ratelimit_namespaces',
            'ratelimit_overrides',
            'workspaces',
          ])
            expect(rowsRead(table)).toBe(0)
        }
        await countRootKeys(sql, workspaceId, 'root_20000')
        expect(rowsRead('keys')).toBe(150)
        await countOtherOperatorKeys(sql, 'none')
        expect(rowsRead('keys')).toBe(0)
        await hasOperatorKey(sql)
        expect(rowsRead('keys')).toBe(0)
      })
    })

    /** The statistics tell of fifty keys: few enough to be read and sorted, were the planner to believe it. */
    test('an API that grew since the statistics were made is listed without reading others', async () => {
      await withoutTriggers((tx) => insertKeys(tx, 'ks_3', { first: MILLION + 30_050, rows: 50_000 }))
      await expectCheapKeys('ks_3', null)
      await expectCheapKeys('ks_3', { identityId: 'id_busy' })
      await expectCheapKeys('ks_3', { ownerId: 'busy owner' })
    })

    /** Slices of a deletion hold their locks for as long as they read. */
    test('a slice of a sweep reads the keys that it changes, and no others', async () => {
      const actor = { rootKeyId: 'root_100000', location: null, userAgent: null }
      const keyspace = (isPermanent: boolean) =>
        ({ kind: 'keyspace', subject: 'ks_3', detail: { apiId: 'api_late_3', isPermanent, actor } }) as const
      const { sql, rowsRead, waysTo } = explaining(database.sql)
      for (const swept of [
        keyspace(false),
        keyspace(true),
        { kind: 'identity', subject: 'id_busy', detail: null } as const,
      ]) {
        await sweepSlice(sql, { id: 0, workspaceId, ...swept }, { limit: 100, now: 1 })
        expect([swept.kind, rowsRead('keys')]).toEqual([swept.kind, 200])
        expect(waysTo('keys')).toEqual(['Index Scan keys_pkey'])
      }
    })

    test('a slice of a deletion of keys passes over none of those that slices before it deleted', async () => {
      await withoutTriggers(
        (tx) => tx`
        insert into keys (id, workspace_id, keyspace_id, hash, start, created_at)
        select 'swept_' || lpad(n::text, 6, '0'), ${workspaceId}, 'ks_swept', 'swept ' || n, '', 0 from generate_series(1, 100000) as n`,
      )
      const actor = { rootKeyId: 'root_100000', location: null, userAgent: null }
      const detail = { apiId: 'api_late_3', isPermanent: false, actor }
      const sweep = { id: 0, workspaceId, kind: 'keyspace', subject: 'ks_swept', detail } as const
      const { last } = await sweepSlice(database.sql, sweep, { limit: 50_000, now: 1 })
      const { sql, rowsRead, pagesRead } = explaining(database.sql)
      await sweepSlice(sql, sweep, { limit: 100, now: 1, after: last })
      expect(rowsRead('keys')).toBe(200)
      expect(pagesRead()).toBeLessThan(5_000)
      expect((await sweepSlice(database.sql, sweep, { limit: 100_000, now: 1 })).rows).toBe(49_900)
    })

    /** A slice that reads the table from its beginning passes over all that the slices before it removed. */
    test('a slice of a sweep of links reads these links alone', async () => {
      await withoutTriggers(
        (tx) => tx`
        insert into keys_roles (key_id, role_id, workspace_id, created_at)
        select 'key_' || lpad(n::text, 7, '0'), 'role_busy', ${workspaceId}, 0 from generate_series(1, 200000) as n`,
      )
      await database.sql`vacuum analyze keys_roles`
      await database.sql`delete from keys_roles where key_id < 'key_0100000'`
      const sweep = { id: 0, workspaceId, kind: 'role', subject: 'role_busy', detail: null } as const
      expect((await sweepSlice(database.sql, sweep, { limit: 100, now: 1 })).rows).toBe(100) // its index passes over them once
      const { sql, rowsRead, waysTo, pagesRead } = explaining(database.sql)
      await sweepSlice(sql, sweep, { limit: 100, now: 1 })
      // While a transaction writes in any database of this Postgres, deleted rows are passed over again and again.
      while (pagesRead() >= 700) {
        await Bun.sleep(100)
        await sweepSlice(sql, sweep, { limit: 100, now: 1 })
      }
      expect(rowsRead('keys_roles')).toBe(100)
      expect(waysTo('keys_roles')).toEqual(['Index Scan keys_roles_by_role_in_order'])
      expect(pagesRead()).toBeLessThan(700)
    })

    /** Deleted keys of an owner were in no index: each slice of an erasure read all keys of the server. */
    test('an erasure finds the keys of a person, also deleted ones, without reading others', async () => {
      const person = { identityIds: ['id_erased'], ownerIds: ['erased owner'] }
      const { sql, rowsRead } = explaining(database.sql)
      await withoutTriggers(async (tx) => {
        for (const [at, identityId, ownerId, deletedAt] of [
          [1, 'id_erased', 'erased owner', null],
          [2, 'id_erased', null, 1],
          [3, null, 'erased owner', null],
          [4, null, 'erased owner', 1],
          [5, 'id_other', 'erased owner', 1],
        ] as const)
          await tx`
          insert into keys (id, workspace_id, keyspace_id, hash, start, created_at, deleted_at, identity_id, owner_id)
          values (${`key_erased_${at}`}, ${workspaceId}, 'ks_1', ${`erased hash ${at}`}, '', 0, ${deletedAt}, ${identityId}, ${ownerId})`
      })
      const found = await lockKeysOf(database.sql, workspaceId, person, 100)
      expect(found.map(({ id }) => id)).toEqual([1, 2, 3, 4].map((at) => `key_erased_${at}`))
      await lockKeysOf(sql, workspaceId, person, 100)
      expect(rowsRead('keys')).toBe(4)
      await clearOwnerOfDeleted(sql, workspaceId, 'erased owner')
      expect(rowsRead('keys')).toBe(2)
      // What it revokes first: its own statements find nothing under explain.
      await revokeSomeKeysOf(sql, workspaceId, person, { limit: 100, now: 1 })
      expect(rowsRead('keys')).toBe(0)
      const revoked = await revokeSomeKeysOf(database.sql, workspaceId, person, { limit: 100, now: 1 })
      expect(revoked?.map(({ id }) => id)).toEqual(['key_erased_1', 'key_erased_3'])
      expect(await revokeSomeKeysOf(database.sql, workspaceId, person, { limit: 100, now: 1 })).toBeNull()
    })
  },
)
