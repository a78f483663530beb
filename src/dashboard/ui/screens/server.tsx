import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import type {
  GetHistoryReply,
  GetSettingsReply,
  GetStatusReply,
  ListServersReply,
} from '../../../doors/v1/server/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, fromNow, share, short, utc } from '../format.ts'
import { Choice } from '../parts/form.tsx'
import { type LineChart, Lines } from '../parts/lines.tsx'
import { Panel } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { place, setQuery } from '../route.ts'
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
        {loaded.data === null ? (
          'Of the server that answers.'
        ) : (
          <>
            Of{' '}
            <b>
              {loaded.data.status.host}, {loaded.data.status.id}
            </b>
            , which answered. Counts are since its start.
          </>
        )}{' '}
        <a href="/docs/monitoring">Metrics</a> keep more than three hours.
      </p>
      <div class="panels">
        <History />
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
        <Servers />
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
        <Settings />
      </div>
    </>
  )
}

/** Three hours by minute, of all methods or of one. */
function History() {
  const path = place.value.query.get('method') ?? ''
  const loaded = useData(
    `history ${path}`,
    (options) => ask('server.getHistory', path === '' ? {} : { path }, options),
    { everyMs: 30_000 },
  )
  const methods = loaded.data?.methods ?? []
  return (
    <Panel
      title="Last three hours"
      loaded={loaded}
      isWide
      actions={
        <Choice
          label="Calls of"
          isLabelHidden
          value={path}
          options={[
            { value: '', name: 'All methods' },
            ...(path === '' || methods.includes(path) ? methods : [path, ...methods]).map((value) => ({
              value,
              name: value,
            })),
          ]}
          onChange={(value) => setQuery({ method: value })}
        />
      }
    >
      {({ samples }) =>
        samples.length === 0 ? (
          <p class="empty">
            The first minute is not over yet. The server keeps one sample a minute, in memory: a restart
            forgets them.
          </p>
        ) : (
          <Lines
            label="Figures of the last three hours"
            file="server-history.csv"
            times={samples.map(({ at }) => at)}
            spanMs={SPAN_MS}
            charts={chartsOf(samples)}
          />
        )
      }
    </Panel>
  )
}

const SPAN_MS = 3 * 3_600_000

const chartsOf = (samples: GetHistoryReply['samples']): LineChart[] => {
  const line = (value: (sample: GetHistoryReply['samples'][number]) => number | null, name = '') => ({
    name,
    className: 'l1' as const,
    values: samples.map(value),
  })
  return [
    {
      name: 'Calls a second',
      lines: [line(({ calls, lengthMs }) => (1000 * calls) / lengthMs)],
      words: (value) => (value === null ? '–' : value < 10 ? value.toFixed(1) : exact(Math.round(value))),
    },
    {
      name: 'Calls took at most',
      lines: [line(({ p50Ms }) => p50Ms, 'half'), { ...line(({ p99Ms }) => p99Ms, '99 %'), className: 'l2' }],
      words: (value) =>
        value === null ? '–' : `${value < 10 ? Number(value.toFixed(2)) : exact(Math.round(value))}\u00a0ms`,
    },
    {
      name: 'Oldest count not written',
      lines: [line(({ flushLagMs }) => flushLagMs / 1000)],
      words: (value) =>
        value === null ? '–' : `${value < 10 ? value.toFixed(1) : exact(Math.round(value))}\u00a0s`,
    },
    {
      name: 'Memory of the limiter',
      lines: [
        line(({ limiterBytes, limiterBytesMax }) => (100 * limiterBytes) / Math.max(1, limiterBytesMax)),
      ],
      words: (value) =>
        value === null ? '–' : `${value < 10 ? value.toFixed(1) : Math.round(value)}\u202f%`,
    },
    {
      name: 'Found in caches',
      top: 100,
      lines: [
        line(({ cacheHits, cacheMisses }) =>
          cacheHits + cacheMisses === 0 ? null : (100 * cacheHits) / (cacheHits + cacheMisses),
        ),
      ],
      words: (value) => (value === null ? '–' : `${value === 100 ? 100 : value.toFixed(1)}\u202f%`),
    },
    {
      name: 'Connections of clients',
      lines: [line(({ connections }) => connections)],
      words: (value) => (value === null ? '–' : exact(Math.round(value))),
    },
  ]
}

type Known = ListServersReply['servers'][number]
type Member = NonNullable<ListServersReply['fleet']>['members'][number]

/** Who else runs on the database, and shares limits. */
function Servers() {
  const loaded = useData('servers', (options) => ask('server.listServers', {}, options), {
    everyMs: EVERY_MS,
  })
  return (
    <Panel title="Servers on this database" loaded={loaded} isWide>
      {({ servers, fleet }) => (
        <>
          <Table<Known>
            label="Servers"
            file="servers.csv"
            rows={servers}
            keyOf={({ id }) => id}
            columns={[
              HOST,
              { ...ID, name: 'Id' },
              { name: 'Version', cell: ({ version }) => version, text: ({ version }) => version },
              SEEN,
            ]}
          />
          {fleet === null ? (
            <p class="secondary">
              {servers.length > 1
                ? 'Each counts its own limits: together they let through up to as many times a limit as there are servers. '
                : 'It counts its own limits. '}
              <a href="/docs/several-servers">Several servers</a> can count together with{' '}
              <code>TOLLGATE_FLEET</code>.
            </p>
          ) : (
            <>
              <h3>Those that share their limits</h3>
              <p class="secondary">
                The engine that counts them {CONDITIONS[fleet.condition] ?? fleet.condition}.
              </p>
              <Table<Member>
                label="Servers that share their limits"
                file="fleet.csv"
                rows={fleet.members}
                keyOf={({ id }) => id}
                columns={[
                  HOST,
                  { ...ID, name: 'Process' },
                  {
                    name: 'Counts on',
                    cell: ({ engine }) => <code>{engine}</code>,
                    text: ({ engine }) => engine,
                  },
                  SEEN,
                ]}
              />
            </>
          )}
        </>
      )}
    </Panel>
  )
}

const HOST = {
  name: 'Host',
  cell: ({ host, isThis }: { host: string; isThis: boolean }) => (
    <>
      {host} {isThis && <span class="tag">answers</span>}
    </>
  ),
  text: ({ host }: { host: string }) => host,
}
const ID = {
  isMinor: true,
  cell: ({ id }: { id: string }) => <code>{id}</code>,
  text: ({ id }: { id: string }) => id,
}
const SEEN = {
  name: 'Seen',
  cell: ({ seenAt }: { seenAt: number }) => <Seen at={seenAt} />,
  text: ({ seenAt }: { seenAt: number }) => utc(seenAt),
}

const CONDITIONS: Record<string, string> = {
  ok: 'answers',
  learning: 'has forgotten and gives nothing for a moment, until the servers have told it what they hold',
  away: 'does not answer, so TOLLGATE_FLEET_OUTAGE decides',
}

const Seen = ({ at }: { at: number }) => (
  <span title={utc(at)}>
    {Date.now() - at < 5000 ? 'now' : `${exact(Math.round((Date.now() - at) / 1000))}\u00a0s ago`}
  </span>
)

type Setting = GetSettingsReply['settings'][number]

/** What the server was started with, as `tollgate config` shows it. */
function Settings() {
  const loaded = useData('settings', (options) => ask('server.getSettings', {}, options))
  const [isAll, setAll] = useState(false)
  return (
    <Panel
      title="Settings"
      loaded={loaded}
      isWide
      actions={
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} />
          Defaults too
        </label>
      }
    >
      {({ settings }) => {
        const shown = settings.filter(({ source }) => isAll || source !== 'default')
        return (
          <>
            <p class="secondary">
              As they were at its start, without secrets. <a href="/docs/configuration">What each means</a>
            </p>
            {shown.length === 0 ? (
              <p class="empty">Nothing is set: all are defaults.</p>
            ) : (
              <Table<Setting>
                label="Settings"
                file="settings.csv"
                rows={shown}
                keyOf={({ name }) => name}
                columns={[
                  { name: 'Name', cell: ({ name }) => <code>{name}</code>, text: ({ name }) => name },
                  {
                    name: 'Value',
                    cell: ({ value, otherwise }) =>
                      value === null ? (
                        <span class="secondary">{otherwise}</span>
                      ) : (
                        <code class="wrap">{value}</code>
                      ),
                    text: ({ value }) => value ?? '',
                  },
                  {
                    name: 'From',
                    isMinor: true,
                    cell: ({ source, path }) => (path === null ? source : `${source} ${path}`),
                    text: ({ source, path }) => (path === null ? source : `${source} ${path}`),
                  },
                ]}
              />
            )}
          </>
        )
      }}
    </Panel>
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
  if (before === null || before.status.id !== status.id || before.status.startedAt !== status.startedAt)
    return null
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
