import type { GetOverviewReply } from '../../../doors/v1/analytics/schema.ts'
import { useData } from '../data.ts'
import { exact, share, short } from '../format.ts'
import { Bars } from '../parts/chart.tsx'
import { NearLimit } from '../parts/limits.tsx'
import { OUTCOMES } from '../parts/outcomes.ts'
import { Panel } from '../parts/panel.tsx'
import { useTitle } from '../parts/title.tsx'
import { place, setQuery } from '../route.ts'
import { ask, within, workspaceId } from '../session.ts'
import { Checklist } from './checklist.tsx'

const RANGES = [
  { value: '24h', name: 'Last 24 hours', hours: 24 },
  { value: '3d', name: 'Last 3 days', hours: 72 },
  { value: '7d', name: 'Last 7 days', hours: 168 },
] as const

/** How the workspace is used: totals, hours by outcome, which keys are used and refused most, and who is near a limit. */
export function Overview() {
  const heading = useTitle('Overview')
  const asked = place.value.query.get('range')
  const range = RANGES.find(({ value }) => value === asked) ?? RANGES[0]
  const key = `${workspaceId.value} ${range.value}`
  // The current hour counts, so a day is it and the 23 before.
  const start = () => Date.now() - (range.hours - 1) * 3_600_000
  const hours = useData(
    `hours ${key}`,
    ({ signal, isRefresh }) => ask('analytics.getOverview', { start: start() }, { signal, isRefresh }),
    { everyMs: 10_000 },
  )
  const most = useData(
    `most ${key}`,
    ({ signal, isRefresh }) =>
      ask('analytics.getOverview', { start: start(), top: 5 }, { signal, isRefresh }),
    { everyMs: 60_000 },
  )
  const near = useData(
    `near ${workspaceId.value}`,
    ({ signal, isRefresh }) => ask('ratelimits.listNearLimit', { limit: 5 }, { signal, isRefresh }),
    { everyMs: 10_000 },
  )
  return (
    <>
      <div class="head">
        {heading}
        <label class="range">
          <span class="visually-hidden">Range</span>
          <select
            value={range.value}
            onChange={(event) =>
              setQuery({ range: event.currentTarget.value === '24h' ? null : event.currentTarget.value })
            }
          >
            {RANGES.map(({ value, name }) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Checklist />
      <div class="panels">
        <Panel title="Verifications" loaded={hours} isWide>
          {(data) => <Verifications data={data} file={`verifications-${range.value}.csv`} />}
        </Panel>
        <Panel title="Refused most" loaded={most}>
          {({ mostRefused }) => (
            <Keys rows={mostRefused} empty="No verification was refused.">
              {(row) => refusalsOf(row)}
            </Keys>
          )}
        </Panel>
        <Panel title="Used most" loaded={most}>
          {({ mostUsed }) => (
            <Keys rows={mostUsed} empty="No key was verified yet.">
              {(row) => exact(row.total)}
            </Keys>
          )}
        </Panel>
        <Panel title="Near their limit now" loaded={near} isWide>
          {({ identifiers }) => <NearLimit identifiers={identifiers} />}
        </Panel>
      </div>
    </>
  )
}

function Verifications({ data: { hours }, file }: { data: GetOverviewReply; file: string }) {
  const total = hours.reduce((sum, hour) => sum + hour.total, 0)
  const valid = hours.reduce((sum, hour) => sum + hour.valid, 0)
  const latest = hours.at(-1)
  if (total === 0)
    return <p class="empty">No key was verified in this time. Each verification counts within a second.</p>
  return (
    <>
      <dl class="figures">
        <Figure name="verified" value={total} />
        <Figure name="refused" value={total - valid} note={share(total - valid, total)} />
        <Figure name="in this hour" value={latest?.total ?? 0} />
      </dl>
      <Bars
        label="Verifications by hour"
        times={hours.map(({ time }) => time)}
        series={OUTCOMES.map(({ field, name, series }) => ({
          name,
          className: series,
          values: hours.map((hour) => hour[field]),
        }))}
        file={file}
      />
    </>
  )
}

const Figure = ({ name, value, note }: { name: string; value: number; note?: string }) => (
  <div>
    <dt>{name}</dt>
    <dd title={exact(value)}>
      {short(value)}
      {note !== undefined && <small> {note}</small>}
    </dd>
  </div>
)

type Row = GetOverviewReply['mostUsed'][number]

function Keys({
  rows,
  empty,
  children,
}: {
  rows: readonly Row[]
  empty: string
  children: (row: Row) => string
}) {
  if (rows.length === 0) return <p class="empty">{empty}</p>
  return (
    <ul class="rows">
      {rows.map((row) => (
        <li key={row.keyId}>
          <span class="what">
            {row.start === undefined ? (
              <b>deleted key</b>
            ) : (
              <a href={within(`keys/${encodeURIComponent(row.keyId)}`)}>{row.name ?? 'unnamed key'}</a>
            )}
            <code title={row.keyId}>{row.start === undefined ? row.keyId : `${row.start}…`}</code>
          </span>
          <span class="number">{children(row)}</span>
        </li>
      ))}
    </ul>
  )
}

/** The most frequent reason and the number of all refusals. */
function refusalsOf(row: Row): string {
  const [first] = OUTCOMES.filter(({ field }) => field !== 'valid').sort(
    (a, b) => row[b.field] - row[a.field],
  )
  return `${first?.name ?? ''} ${exact(row.total - row.valid)}`
}
