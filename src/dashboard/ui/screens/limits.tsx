import { useState } from 'preact/hooks'
import type { RatelimitDatapoint } from '../../../doors/v1/analytics/schema.ts'
import { useData } from '../data.ts'
import { exact, share } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { Bars } from '../parts/chart.tsx'
import { Button, Field } from '../parts/controls.tsx'
import { FormDialog } from '../parts/dialog.tsx'
import { decisionSeries, NearLimit, namespacePath, orNull } from '../parts/limits.tsx'
import { Panel } from '../parts/panel.tsx'
import { RangeSelect, useRange } from '../parts/range.tsx'
import { CsvButton } from '../parts/save-csv.tsx'
import { useTitle } from '../parts/title.tsx'
import { go, place, setQuery } from '../route.ts'
import { ask, lacking, workspaceId } from '../session.ts'

/** Namespaces: what passed and was refused in each, and who is near a limit now. */
export function Limits() {
  const heading = useTitle('Limits')
  const range = useRange()
  const [isCreating, setCreating] = useState(false)
  const after = place.value.query.get('after') ?? ''
  const id = workspaceId.value
  const decisions = useData(
    `decisions ${id} ${range.value}`,
    ({ signal, isRefresh }) =>
      ask(
        'analytics.getRatelimits',
        { groupBy: ['namespace', 'hour'], start: range.start() },
        { signal, isRefresh },
      ),
    { everyMs: 10_000 },
  )
  const list = useData(`namespaces ${id} ${after}`, ({ signal, isRefresh }) =>
    ask(
      'ratelimits.listNamespaces',
      { limit: 50, ...(after !== '' && { cursor: after }) },
      { signal, isRefresh },
    ),
  )
  const near = useData(
    `near ${id}`,
    ({ signal, isRefresh }) => ask('ratelimits.listNearLimit', { limit: 20 }, { signal, isRefresh }),
    { everyMs: 2_000 },
  )
  const missing = lacking('ratelimit.*.create_namespace')
  useShortcuts({ c: () => missing === null && setCreating(true) })
  return (
    <>
      <div class="head">
        {heading}
        <RangeSelect range={range} />
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setCreating(true)}>
          Create namespace
        </Button>
      </div>
      <div class="panels">
        <Panel title="Decisions" loaded={decisions} isWide>
          {(points) => <Decisions points={points} file={`ratelimits-${range.value}.csv`} />}
        </Panel>
        <Panel title="Near their limit now" loaded={near}>
          {({ identifiers }) => <NearLimit identifiers={identifiers} />}
        </Panel>
        <Panel title="Namespaces" loaded={list}>
          {({ namespaces, total, cursor }) => (
            <Namespaces
              namespaces={namespaces}
              points={decisions.data ?? []}
              total={total}
              next={cursor ?? null}
              isFirst={after === ''}
            />
          )}
        </Panel>
      </div>
      {isCreating && <Create onClose={() => setCreating(false)} />}
    </>
  )
}

/** All namespaces together, by hour. */
export function Decisions({ points, file }: { points: readonly RatelimitDatapoint[]; file: string }) {
  const byHour = new Map<number, { passed: number; denied: number }>()
  for (const { time = 0, passed, denied } of points) {
    const sum = byHour.get(time) ?? { passed: 0, denied: 0 }
    byHour.set(time, { passed: sum.passed + passed, denied: sum.denied + denied })
  }
  const hours = [...byHour].sort(([a], [b]) => a - b)
  if (hours.every(([, { passed, denied }]) => passed + denied === 0))
    return <p class="empty">No limit was asked for in this time. Each decision counts within a second.</p>
  return (
    <Bars
      label="Decisions by hour"
      times={hours.map(([time]) => time)}
      series={decisionSeries(hours.map(([, sum]) => sum))}
      file={file}
    />
  )
}

function Namespaces({
  namespaces,
  points,
  total,
  next,
  isFirst,
}: {
  namespaces: readonly { id: string; name: string }[]
  points: readonly RatelimitDatapoint[]
  total: number
  next: string | null
  isFirst: boolean
}) {
  if (total === 0)
    return (
      <p class="empty">
        No namespace yet. The first call of <code>ratelimits.limit</code> with a new name creates one.
      </p>
    )
  const rows = namespaces.map(({ id, name }) => {
    const own = points.filter(({ namespace }) => namespace?.id === id)
    const passed = own.reduce((sum, each) => sum + each.passed, 0)
    const denied = own.reduce((sum, each) => sum + each.denied, 0)
    return { id, name, passed, denied }
  })
  return (
    <>
      <div class="scroll-x">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col" class="number">
                Passed
              </th>
              <th scope="col" class="number">
                Refused
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ id, name, passed, denied }) => (
              <tr key={id}>
                <th scope="row" class="wrap">
                  <a href={namespacePath(id)}>{name}</a>
                </th>
                <td class="number">{exact(passed)}</td>
                <td class="number">
                  {exact(denied)}
                  <span class="secondary"> {share(denied, passed + denied)}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="below">
        {!isFirst && (
          <Button onClick={() => setQuery({ after: null }, { replaces: false })}>First page</Button>
        )}
        {next !== null && (
          <Button onClick={() => setQuery({ after: next }, { replaces: false })}>Next page</Button>
        )}
        <span class="secondary">{exact(total)} in all</span>
        <CsvButton
          file="namespaces.csv"
          rows={[
            ['id', 'name', 'passed', 'refused'],
            ...rows.map(({ id, name, passed, denied }) => [id, name, String(passed), String(denied)]),
          ]}
        />
      </div>
    </>
  )
}

function Create({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  return (
    <FormDialog
      title="Create a namespace"
      button="Create"
      icon="plus"
      onClose={onClose}
      run={async () => {
        const { namespaceId } = await ask('ratelimits.createNamespace', { name })
        go(namespacePath(namespaceId))
      }}
    >
      <Field
        label="Name"
        value={name}
        onInput={setName}
        required
        maxLength={512}
        placeholder="email.send"
        hint="Calls name it in ratelimits.limit. Identifiers of different namespaces are counted apart."
      />
    </FormDialog>
  )
}

/** A namespace, for screens that have its id; null = it may not be read. */
export const namespaceOf = async (namespaceId: string, options: { signal: AbortSignal }) =>
  (await orNull(ask('ratelimits.getWindows', { namespaceId, identifier: '' }, options)))?.namespace ?? null
