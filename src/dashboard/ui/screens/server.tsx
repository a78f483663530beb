import type { ComponentChildren } from 'preact'
import { useRef } from 'preact/hooks'
import type { GetStatusReply } from '../../../doors/v1/server/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, fromNow, share, short, utc } from '../format.ts'
import { Panel } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { ask } from '../session.ts'

type Method = GetStatusReply['methods'][number]
type Answer = { status: GetStatusReply; at: number; rates: ReadonlyMap<string, number> | null }

const EVERY_MS = 10_000

/** Figures of the server that answers, for operators. Rates are between two answers. */
export function Server() {
  const heading = useTitle('Server')
  const before = useRef<Answer | null>(null)
  const loaded = useData<Answer>(
    'server',
    async (options) => {
      const status = await ask('server.getStatus', {}, options)
      const answer = { status, at: Date.now(), rates: ratesOf(before.current, status) }
      before.current = answer
      return answer
    },
    { everyMs: EVERY_MS },
  )
  return (
    <>
      <div class="head">{heading}</div>
      <p class="secondary">
        Of the server that answered this page; others on the same database have their own. Counts are since
        its start. <a href="/docs/monitoring">Metrics</a> keep a history.
      </p>
      <div class="panels">
        <Panel title="Process" loaded={loaded}>
          {({ status }) => (
            <Facts
              facts={[
                ['Version', status.version],
                ['State', status.state],
                [
                  'Started',
                  <span
                    title={utc(status.startedAt)}
                  >{`${dayAndTime(status.startedAt)}, ${fromNow(status.startedAt)}`}</span>,
                ],
                ['Memory', bytes(status.residentBytes)],
                ['Connections of clients', exact(status.connections)],
                [
                  'Disk of the data directory',
                  status.disk === null
                    ? 'cannot be read'
                    : `${bytes(status.disk.freeBytes)} free of ${bytes(status.disk.sizeBytes)}`,
                ],
              ]}
            />
          )}
        </Panel>
        <Panel title="Database and usage" loaded={loaded}>
          {({ status: { database, databaseConnections, usage } }) => (
            <Facts
              facts={[
                ['Database', database],
                [
                  'Its connections',
                  `${exact(databaseConnections.active)} active, ${exact(databaseConnections.idle)} idle`,
                ],
                [
                  'Usage that waits',
                  usage.waiting === 0
                    ? 'none'
                    : `${counted(usage.waiting, 'sum')}; usage is safe, and written later`,
                ],
                ['Oldest of it', lag(usage.flushLagMs)],
                ['Files of usage that wait', exact(usage.spillFiles)],
              ]}
            />
          )}
        </Panel>
        <Panel title="Limiter" loaded={loaded}>
          {({ status: { limiter } }) => (
            <>
              <Facts
                facts={[
                  ['Counters in memory', exact(limiter.windows)],
                  [
                    'Their memory',
                    `${bytes(limiter.bytes)} of ${bytes(limiter.bytesMax)}, ${share(limiter.bytes, limiter.bytesMax)}`,
                  ],
                  ['Oldest count not in the database', lag(limiter.flushLagMs)],
                ]}
              />
              <progress
                aria-label="Memory of the counters"
                max={Math.max(1, limiter.bytesMax)}
                value={limiter.bytes}
              />
            </>
          )}
        </Panel>
        <Panel title="Threads and caches" loaded={loaded}>
          {({ status: { threads, caches } }) => (
            <Facts
              facts={[
                ...threads.map(
                  ({ name, isUp, lagMs }): Fact => [name, isUp ? `up, lag ${exact(lagMs)} ms` : 'down'],
                ),
                ...caches.map(
                  ({ name, hits, misses }): Fact => [
                    `Cache of ${name}`,
                    hits + misses === 0
                      ? 'not asked yet'
                      : `${share(hits, hits + misses)} of ${short(hits + misses)} found`,
                  ],
                ),
              ]}
            />
          )}
        </Panel>
        <Panel title="Methods" loaded={loaded} isWide>
          {({ status: { methods }, rates }) => (
            <Table<Method>
              label="Methods"
              file="methods.csv"
              rows={methods}
              keyOf={({ path }) => path}
              columns={[
                { name: 'Method', cell: ({ path }) => <code>{path}</code>, text: ({ path }) => path },
                {
                  name: 'Calls/s',
                  isNumber: true,
                  cell: ({ path }) => (rates === null ? '…' : (rates.get(path) ?? 0).toFixed(1)),
                },
                {
                  name: 'Calls',
                  isNumber: true,
                  cell: ({ calls }) => exact(calls),
                  text: ({ calls }) => String(calls),
                },
                {
                  name: 'Failed',
                  isNumber: true,
                  isMinor: true,
                  cell: ({ failed }) => exact(failed),
                  text: ({ failed }) => String(failed),
                },
                {
                  name: 'Half within',
                  isNumber: true,
                  isMinor: true,
                  cell: ({ p50Ms }) => within(p50Ms),
                  text: ({ p50Ms }) => within(p50Ms),
                },
                {
                  name: '99 % within',
                  isNumber: true,
                  cell: ({ p99Ms }) => within(p99Ms),
                  text: ({ p99Ms }) => within(p99Ms),
                },
              ]}
            />
          )}
        </Panel>
      </div>
    </>
  )
}

type Fact = readonly [name: string, value: ComponentChildren]

const Facts = ({ facts }: { facts: readonly Fact[] }) => (
  <dl class="facts wide">
    {facts.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
)

/** Calls a second of each method since the answer before; null = there was none, or the server started again. */
function ratesOf(before: Answer | null, status: GetStatusReply): ReadonlyMap<string, number> | null {
  if (before === null || before.status.startedAt !== status.startedAt) return null
  const seconds = Math.max(0.001, (Date.now() - before.at) / 1000)
  const calls = new Map(before.status.methods.map((each) => [each.path, each.calls]))
  return new Map(
    status.methods.map((each) => [each.path, (each.calls - (calls.get(each.path) ?? 0)) / seconds]),
  )
}

const within = (ms: number | null) => (ms === null ? 'longer' : `${ms}\u00a0ms`)
const lag = (ms: number) => (ms < 1000 ? 'less than a second' : `${exact(Math.round(ms / 1000))}\u00a0s`)

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

function bytes(count: number): string {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10))
  const value = count / 1024 ** power
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)}\u00a0${UNITS[power]}`
}
