import { type Static, Type } from '@sinclair/typebox'
import { SAMPLES_MAX } from '../../../api/server/status-history.ts'
import { Nullable } from '../page.ts'

const Count = (description: string) => Type.Integer({ description })
const Bytes = (what: string) => Type.Integer({ description: `${what}, bytes.` })
const Ms = (what: string) => Type.Integer({ description: `${what}, milliseconds.` })
const Bound = (what: string) =>
  Nullable(Type.Number(), `${what} took at most this, milliseconds; null = longer than is measured.`)

const ServerId = Type.String({ description: 'Id of the server. It outlives restarts.' })
const Host = Type.String({ description: 'Name of its host.' })
const SeenAt = Type.Integer({ description: 'When it was last seen, Unix milliseconds.' })
const IsThis = Type.Boolean({ description: 'True = it is the server that answers.' })

export const GetStatusReply = Type.Object({
  id: ServerId,
  host: Host,
  version: Type.String({ description: 'Version of the server.' }),
  state: Type.String({ description: '`starting`, `ready`, `draining` or `stopping`.' }),
  database: Type.String({ description: '`ok`, `read-only` or `away`.' }),
  startedAt: Type.Integer({ description: 'When the server started, Unix milliseconds.' }),
  residentBytes: Bytes('Memory of the process'),
  cpuSeconds: Type.Number({ description: 'Processor time of all threads since the start, seconds.' }),
  connections: Count('Open connections of clients.'),
  databaseConnections: Type.Object(
    {
      active: Count('Connections that run a statement.'),
      idle: Count('Connections that wait for one.'),
    },
    { description: 'Connections of the database, of all servers.' },
  ),
  threads: Type.Array(
    Type.Object({
      name: Type.String({ description: '`http-0`, `shard-0`, …' }),
      isUp: Type.Boolean({ description: 'False = it does not answer; a new one is started.' }),
      lagMs: Ms('How long work waited for the thread lately'),
    }),
    { description: 'HTTP threads and limiter shards.' },
  ),
  limiter: Type.Object(
    {
      windows: Count('Counters in memory.'),
      bytes: Bytes('Memory of the counters'),
      bytesMax: Bytes('Budget for them'),
      flushLagMs: Ms('Age of the oldest count that is not in the database yet'),
    },
    { description: 'Rate limits.' },
  ),
  usage: Type.Object(
    {
      waiting: Count('Sums of usage that wait to be written.'),
      flushLagMs: Ms('Age of the oldest of them'),
      spillFiles: Count('Files of usage that wait in the data directory.'),
    },
    { description: 'Usage is safe and is written later while the database is away.' },
  ),
  disk: Nullable(
    Type.Object({ freeBytes: Bytes('Free'), sizeBytes: Bytes('Size') }),
    'File system of the data directory; null = it cannot be read.',
  ),
  caches: Type.Array(
    Type.Object({
      name: Type.String({ description: '`keys` or `namespaces`.' }),
      hits: Count('Look-ups that needed no database, since the start.'),
      misses: Count('Look-ups that did.'),
    }),
    { description: 'Records in memory.' },
  ),
  methods: Type.Array(
    Type.Object({
      path: Type.String({ description: 'Path of the method.' }),
      calls: Count('Calls since the start.'),
      failed: Count('Those that were answered with a status of 500 or above.'),
      p50Ms: Bound('Half of the calls'),
      p99Ms: Bound('99 of 100 calls'),
    }),
    { description: 'Methods that were called, most called first; at most 100.' },
  ),
})
export type GetStatusReply = Static<typeof GetStatusReply>

export const GetHistoryQuery = Type.Object({
  path: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Calls of the method with this path only, as in `methods`. Default: all calls.',
    }),
  ),
})
export const GetHistoryReply = Type.Object({
  samples: Type.Array(
    Type.Object({
      at: Type.Integer({ description: 'End of the minute, Unix milliseconds.' }),
      lengthMs: Ms('Its length'),
      calls: Count('Calls in it.'),
      failed: Count('Those that were answered with a status of 500 or above.'),
      p50Ms: Bound('Half of the calls'),
      p99Ms: Bound('99 of 100 calls'),
      flushLagMs: Ms('Age of the oldest count or usage that was not in the database at its end'),
      limiterBytes: Bytes('Memory of the counters at its end'),
      limiterBytesMax: Bytes('Budget for them'),
      cacheHits: Count('Look-ups in it that needed no database.'),
      cacheMisses: Count('Look-ups in it that did.'),
      connections: Count('Connections of clients at its end.'),
    }),
    {
      description: `A minute each, oldest first, of the last ${SAMPLES_MAX} at most. A restart forgets them.`,
    },
  ),
  methods: Type.Array(Type.String(), {
    description: 'Paths of the methods called in these minutes, most called first; at most 100.',
  }),
})
export type GetHistoryReply = Static<typeof GetHistoryReply>

export const GetSettingsReply = Type.Object({
  settings: Type.Array(
    Type.Object({
      name: Type.String({ description: 'Name of the variable.' }),
      value: Nullable(
        Type.String(),
        'What was in effect at the start, secrets masked as `***`; null = nothing, see `otherwise`.',
      ),
      otherwise: Type.String({ description: 'The default, in words.' }),
      source: Type.String({ description: '`environment`, `file` or `default`.' }),
      path: Nullable(Type.String(), 'Path of the file; null = it is none.'),
    }),
    { description: 'As `tollgate config` shows them.' },
  ),
})
export type GetSettingsReply = Static<typeof GetSettingsReply>

export const ListServersReply = Type.Object({
  servers: Type.Array(
    Type.Object({
      id: ServerId,
      host: Host,
      version: Type.String({ description: 'Version of the server.' }),
      seenAt: SeenAt,
      isThis: IsThis,
    }),
    {
      description: 'Servers on the database that were seen in the last minute, by host; at most 100.',
    },
  ),
  fleet: Nullable(
    Type.Object({
      condition: Type.String({
        description: 'What the engine of shared limits is to this server: `ok`, `learning` or `away`.',
      }),
      members: Type.Array(
        Type.Object({
          id: Type.String({ description: 'Id of the process, new at each start.' }),
          host: Host,
          engine: Type.String({ description: 'Its `TOLLGATE_FLEET`, without user and password.' }),
          seenAt: SeenAt,
          isThis: IsThis,
        }),
        {
          description: 'Servers that share their limits, seen in the last 20 seconds, by host; at most 100.',
        },
      ),
    }),
    'Null = this server counts its own limits.',
  ),
})
export type ListServersReply = Static<typeof ListServersReply>
