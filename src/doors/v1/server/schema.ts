import { type Static, Type } from '@sinclair/typebox'
import { Nullable } from '../page.ts'

const Count = (description: string) => Type.Integer({ description })
const Bytes = (what: string) => Type.Integer({ description: `${what}, bytes.` })
const Ms = (what: string) => Type.Integer({ description: `${what}, milliseconds.` })
const Bound = (what: string) =>
  Nullable(Type.Number(), `${what} took at most this, milliseconds; null = longer than is measured.`)

export const GetStatusReply = Type.Object({
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
