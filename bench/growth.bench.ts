import { connect, type Sql } from '../src/db/connect.ts'
import { openTestDatabase } from '../test/support/database.ts'
import { callsTo, type Json, OPERATOR_KEY } from '../test/support/server.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget } from './support/target.ts'

/**
 * Growth: what an operation costs when a workspace has a million keys, as a ratio to what it costs with ten thousand. Two servers,
 * each with a database of its own, filled by SQL; their calls take turns. Claim: at most 1.5 for lists, reads, changes and
 * deletions.
 *
 * An answer that is not the expected one is an error. Only on a real Postgres: TEST_DATABASE_URL.
 */
export async function run({ tiny = false }: { tiny?: boolean } = {}): Promise<void> {
  const [few, many] = tiny ? [2_000, 4_000] : [10_000, 1_000_000]
  const rounds = tiny ? 2 : 15
  console.log(`growth: ${machine()}, ${few.toLocaleString('en')} and ${many.toLocaleString('en')} keys`)
  await using closing = new AsyncDisposableStack()
  const small = await startFilled(few, closing)
  const large = await startFilled(many, closing)

  const rows: (string | number)[][] = []
  for (const { name, call, times = rounds, alone = false } of OPERATIONS) {
    const took: [number[], number[]] = [[], []]
    for (let round = 0; round < times; round++)
      for (const [i, filled] of [small, large].entries()) {
        if (alone) await Promise.all([small, large].map((each) => each.swept()))
        const beganAt = performance.now()
        await call(filled, round)
        took[i]?.push(performance.now() - beganAt)
      }
    const [before, after] = took.map(median)
    rows.push([
      name,
      before ?? Number.NaN,
      after ?? Number.NaN,
      (after ?? Number.NaN) / (before ?? Number.NaN),
    ])
  }
  printTable(['', `ms, ${few.toLocaleString('en')}`, `ms, ${many.toLocaleString('en')}`, 'ratio'], rows)
}

type Filled = {
  size: number
  apiId: string
  post: (path: string, body: unknown) => Promise<Json>
  get: (path: string, query?: Record<string, unknown>) => Promise<Json>
  /** Text of the nth key. */
  keyOf: (n: number) => string
  ids: Record<'identityId' | 'roleId' | 'permissionId' | 'namespaceId', string>
  /** Identities with a tenth of the keys each, from the middle on. */
  bigIdentityIds: string[]
  /** Waits until no deletion has rows left to remove. */
  swept: () => Promise<void>
}

const BIG_IDENTITIES = 3

/** In the order in which they run: the deletions come last. */
const OPERATIONS: {
  name: string
  call: (filled: Filled, round: number) => Promise<unknown>
  /** How often it can run, where it changes what it measures. */
  times?: number
  /** Not while rows of an earlier deletion are being removed. */
  alone?: boolean
}[] = [
  {
    name: 'keys.verifyKey, not cached',
    call: async ({ post, keyOf, size }, round) =>
      must((await post('keys.verifyKey', { key: keyOf((round * 7919 + 13) % size) })).valid === true),
  },
  {
    name: 'keys.getKey',
    call: async ({ get, size }, round) =>
      must((await get('keys.getKey', { keyId: idOf((round * 104729) % size) })).id !== undefined),
  },
  {
    name: 'keys.createKey',
    call: async ({ post, apiId }) => must((await post('keys.createKey', { apiId })).key !== undefined),
  },
  {
    name: 'keys.updateKey',
    call: async ({ post, size }, round) =>
      must(
        (await post('keys.updateKey', { keyId: idOf((round * 31 + 7) % size), name: 'new' })).error ===
          undefined,
      ),
  },
  {
    name: 'keys.deleteKey',
    call: async ({ post, size }, round) =>
      must((await post('keys.deleteKey', { keyId: idOf(size - 1 - round) })).error === undefined),
  },
  {
    name: 'apis.listKeys, first page',
    call: async ({ get, apiId }) => must((await get('apis.listKeys', { apiId })).keys.length === 100),
  },
  {
    name: 'apis.listKeys, in the middle',
    call: async ({ get, apiId, size }) =>
      must((await get('apis.listKeys', { apiId, cursor: idOf(size >> 1) })).keys.length > 0),
  },
  {
    name: 'apis.listKeys of an identity with ten keys',
    call: async ({ get, apiId }) =>
      must((await get('apis.listKeys', { apiId, externalId: 'user_1' })).keys.length === 10),
  },
  {
    name: 'apis.listKeys of an owner with ten keys',
    call: async ({ get, apiId }) =>
      must((await get('apis.listKeys', { apiId, ownerId: 'user_1' })).keys.length === 10),
  },
  {
    name: 'identities.listIdentities',
    call: async ({ get }) => must((await get('identities.listIdentities')).identities.length === 100),
  },
  {
    name: 'identities.getIdentity',
    call: async ({ get, ids }) =>
      must((await get('identities.getIdentity', { identityId: ids.identityId })).id === ids.identityId),
  },
  {
    name: 'ratelimits.listOverrides',
    call: async ({ get, ids }) =>
      must(
        (await get('ratelimits.listOverrides', { namespaceId: ids.namespaceId })).overrides.length === 100,
      ),
  },
  {
    name: 'ratelimits.setOverride, and the next ratelimits.limit',
    call: async ({ post, ids }, round) => {
      const override = { identifier: `new_${round}`, limit: 7, duration: 60_000 }
      await post('ratelimits.setOverride', { ...override, namespaceId: ids.namespaceId })
      must((await post('ratelimits.limit', { ...override, namespace: 'measured', limit: 9 })).limit === 7)
    },
  },
  {
    name: 'audit.listEvents',
    call: async ({ get }) => must((await get('audit.listEvents')).events.length > 0),
  },
  {
    name: 'audit.listEvents of a root key and an event',
    call: async ({ get }) => must((await get('audit.listEvents', { event: 'key.delete' })).events.length > 0),
  },
  {
    name: 'permissions.setRolePermissions of a role that all keys have',
    call: async ({ post, ids }, round) =>
      must(
        Array.isArray(
          await post('permissions.setRolePermissions', {
            roleId: ids.roleId,
            permissions: round % 2 === 0 ? [] : [{ id: ids.permissionId }],
          }),
        ),
      ),
  },
  {
    name: 'identities.deleteIdentity with a tenth of the keys, in force',
    times: BIG_IDENTITIES,
    alone: true,
    call: async ({ post, bigIdentityIds, keyOf, size }, round) => {
      void post('identities.deleteIdentity', { identityId: bigIdentityIds[round] })
      await until(
        async () => !(await post('keys.verifyKey', { key: keyOf(size / 2 + (round * size) / 10) })).identity,
      )
    },
  },
  {
    name: 'permissions.deletePermission that all keys have, in force',
    times: 1,
    call: async ({ post, ids, keyOf }) => {
      void post('permissions.deletePermission', { permissionId: ids.permissionId })
      await until(async () => !(await post('keys.verifyKey', { key: keyOf(1) })).permissions.includes('read'))
    },
  },
  {
    name: 'permissions.deleteRole that all keys have, in force',
    times: 1,
    call: async ({ post, ids, get }) => {
      void post('permissions.deleteRole', { roleId: ids.roleId })
      await until(async () => !((await get('keys.getKey', { keyId: idOf(1) })).roles ?? []).includes('all'))
    },
  },
  {
    name: 'ratelimits.deleteNamespace, in force',
    times: 1,
    call: async ({ post, ids }) => {
      void post('ratelimits.deleteNamespace', { namespaceId: ids.namespaceId })
      const body = { namespace: 'measured', identifier: 'user_1', limit: 9, duration: 60_000 }
      await until(async () => (await post('ratelimits.limit', body)).limit === 9)
    },
  },
  {
    name: 'apis.deleteKeys of all keys, in force',
    times: 1,
    call: async ({ post, apiId, keyOf }) => {
      void post('apis.deleteKeys', { apiId })
      await until(async () => (await post('keys.verifyKey', { key: keyOf(2) })).code === 'NOT_FOUND')
    },
  },
]

/** A server whose workspace has `size` keys, and as many in an API made before. */
async function startFilled(size: number, closing: AsyncDisposableStack): Promise<Filled> {
  const database = closing.use(await openTestDatabase())
  if (database.databaseUrl === null) throw new Error('growth wants a Postgres: set TEST_DATABASE_URL')
  const target = closing.use(
    await startTarget('tollgate', ['src/main.ts', 'serve'], {
      PORT: '0',
      DATABASE_URL: database.databaseUrl,
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_ROOT_KEY: OPERATOR_KEY,
      TOLLGATE_BOUNDS:
        'keys=100000000,identities=100000000,overrides=100000000,overridesPerNamespace=100000000,auditEvents=100000000',
      TOLLGATE_DB_TIMEOUT_MS: '60000', // slow answers are measured, not refused
    }),
  )
  const calls = callsTo(target.url)
  const answerOf = ({ status, body }: { status: number; body: Json }): Json => {
    if (status >= 500) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
    return body
  }
  const post = async (path: string, body: unknown) => answerOf(await calls.post(path, body, OPERATOR_KEY))
  const get = async (path: string, query = {}) => answerOf(await calls.get(path, query, OPERATOR_KEY))
  const { apiId: earlierApiId } = await post('apis.createApi', { name: 'made before' })
  const { apiId } = await post('apis.createApi', { name: 'measured' })
  const { identityId } = await post('identities.createIdentity', { externalId: 'user_1' })
  const bigIdentityIds: string[] = []
  for (let i = 0; i < BIG_IDENTITIES; i++)
    bigIdentityIds.push((await post('identities.createIdentity', { externalId: `big_${i}` })).identityId)
  const { roleId } = await post('permissions.createRole', { name: 'all' })
  const { permissionId } = await post('permissions.createPermission', { name: 'read' })
  await post('permissions.setRolePermissions', { roleId, permissions: [{ id: permissionId }] })
  const { namespaceId } = await post('ratelimits.createNamespace', { name: 'measured' })
  const ids = { identityId, roleId, permissionId, namespaceId }
  const sql = connect({ kind: 'url', url: database.databaseUrl }, { connectionsMax: 1 })
  closing.defer(() => sql.end())
  await fill(sql, size, { ...ids, bigIdentityIds, apiId, earlierApiId })
  const swept = async () => {
    while ((await sql`select from sweeps limit 1`).length > 0) await Bun.sleep(50)
  }
  return { size, apiId, post, get, ids, bigIdentityIds, swept, keyOf: (n) => `measured_${n}` }
}

async function fill(
  sql: Sql,
  size: number,
  ids: Filled['ids'] & { bigIdentityIds: string[]; apiId: string; earlierApiId: string },
) {
  for (const [apiId, prefix, text] of [
    [ids.earlierApiId, 'kea_', 'earlier_'],
    [ids.apiId, 'key_', 'measured_'],
  ] as const)
    await sql`
      insert into keys (id, workspace_id, keyspace_id, hash, start, owner_id, identity_id, created_at)
      select ${prefix} || lpad(n::text, 16, '0'), a.workspace_id, a.keyspace_id,
             encode(sha256(convert_to(${text} || n, 'UTF8')), 'base64'), '',
             case when ${prefix} = 'key_' and n < 10 then 'user_1' end,
             case when ${prefix} = 'key_' and n < 10 then ${ids.identityId}
                  when ${prefix} = 'key_' and n >= ${size / 2}::integer
                  then (${ids.bigIdentityIds}::text[])[1 + (n - ${size / 2}::integer) / ${size / 10}::integer] end, n
        from apis a, generate_series(0, ${size - 1}::integer) as n where a.id = ${apiId}`
  await sql`
    insert into keys_roles (key_id, role_id, workspace_id, created_at)
    select k.id, ${ids.roleId}, k.workspace_id, 0 from keys k join apis a using (keyspace_id) where a.id = ${ids.apiId}`
  await sql`
    insert into identities (id, workspace_id, external_id, created_at)
    select 'id_' || n, a.workspace_id, 'person_' || n, 0
      from apis a, generate_series(1, ${size / 10}::integer) as n where a.id = ${ids.apiId}`
  await sql`
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at)
    select 'rlor_' || n, workspace_id, id, 'user_' || n, 10, 60000, 0
      from ratelimit_namespaces, generate_series(1, ${size / 5}::integer) as n where id = ${ids.namespaceId}`
  await sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
    select 'log_' || n, a.workspace_id, 'key.create', 'key', 'key_root', '[]', 'created', ${Date.now()}
      from apis a, generate_series(1, ${size}::integer) as n where a.id = ${ids.apiId}`
  await sql`vacuum analyze`
}

const idOf = (n: number) => `key_${String(n).padStart(16, '0')}`

function must(isSo: boolean): void {
  if (!isSo) throw new Error('a wrong answer')
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 10_000; attempt++) if (await isSo()) return
  throw new Error('it does not come into force')
}
