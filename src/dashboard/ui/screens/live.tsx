import { useEffect, useRef, useState } from 'preact/hooks'
import type { ListRecentReply, ListWatchesReply, RecentEvent } from '../../../doors/v1/events/schema.ts'
import { type Loaded, useData } from '../data.ts'
import { exact, seconds } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { FormDialog } from '../parts/dialog.tsx'
import { Choice } from '../parts/form.tsx'
import {
  EventTable,
  lackingWatch,
  left,
  NearLimit,
  Outcome,
  orNull,
  rowsOf,
  Subject,
  shown,
  useNow,
} from '../parts/limits.tsx'
import { OUTCOMES } from '../parts/outcomes.ts'
import { Panel } from '../parts/panel.tsx'
import { saveCsv } from '../parts/save-csv.tsx'
import { OfServer } from '../parts/servers.tsx'
import { useTitle } from '../parts/title.tsx'
import { place, setQuery } from '../route.ts'
import { ask, workspaceId } from '../session.ts'

const ROWS = 100

/** What happens now, from the memory of this server. Rows never move under the reader. */
export function Live() {
  const heading = useTitle('Live')
  const [isPaused, setPaused] = useState(false)
  useShortcuts({ p: () => setPaused((before) => !before) })
  const { query } = place.value
  const outcome = query.get('outcome') ?? 'refused'
  const namespaceId = query.get('in') ?? ''
  const watchId = query.get('watch') ?? ''
  const id = workspaceId.value
  const everyMs = isPaused ? null : 2_000
  const filter =
    watchId !== '' ? { watchId, outcome: 'all' } : { outcome, ...(namespaceId !== '' && { namespaceId }) }
  const recent = useData(
    `recent ${id} ${JSON.stringify(filter)}`,
    (options) => ask('events.listRecent', { ...filter, limit: ROWS, top: 8 }, options),
    { everyMs },
  )
  const near = useData(`near ${id}`, (options) => ask('ratelimits.listNearLimit', { limit: 8 }, options), {
    everyMs,
  })
  const watches = useData(`watches ${id}`, (options) => ask('events.listWatches', {}, options), { everyMs })
  const kept = useKept(recent.data?.events ?? [], JSON.stringify(filter))
  const namespaces = useData(`in ${id}`, (options) =>
    orNull(ask('ratelimits.listNamespaces', { limit: 100 }, options)),
  )
  return (
    <>
      <div class="head">
        {heading}
        <Select
          label="Outcome"
          value={watchId === '' ? outcome : 'all'}
          onChange={(value) => setQuery({ outcome: value === 'refused' ? null : value, watch: null })}
          options={[
            ['refused', 'Refused'],
            ['all', 'All'],
            ...OUTCOMES.filter(({ code }) => code !== 'VALID').map(({ code, name }) => [code, name] as const),
          ]}
        />
        <Select
          label="In"
          value={watchId === '' ? namespaceId : ''}
          onChange={(value) => setQuery({ in: value, watch: null })}
          options={[
            ['', 'Keys and limits'],
            ...(namespaces.data?.namespaces ?? []).map(({ id, name }) => [id, name] as const),
          ]}
        />
        <Button icon={isPaused ? 'play' : 'pause'} onClick={() => setPaused(!isPaused)}>
          {isPaused ? 'Go on' : 'Pause'}
        </Button>
      </div>
      <Rates recent={recent} isPaused={isPaused} />
      <div class="panels">
        <Panel title="Near their limit now" loaded={near}>
          {({ identifiers }) => (
            <div class="steady">
              <NearLimit identifiers={identifiers} />
            </div>
          )}
        </Panel>
        <Panel title="Refused most, last minute" loaded={recent}>
          {({ refusedMost }) => (
            <div class="steady">
              <RefusedMost rows={refusedMost} />
            </div>
          )}
        </Panel>
        <Panel title="Watches" loaded={watches} isWide>
          {(data) => <Watches watches={data.watches} onChange={watches.reload} />}
        </Panel>
        <Panel
          title={watchId === '' ? 'Events' : 'Events of the watch'}
          loaded={recent}
          isWide
          actions={
            <div class="news">
              <span role="status">
                {kept.news > 0 && (
                  <Button icon="refresh" onClick={kept.show}>
                    {exact(kept.news)}
                    {kept.isMore && ' or more'} new, show
                  </Button>
                )}
              </span>
              {watchId !== '' && <Button onClick={() => setQuery({ watch: null })}>Show all events</Button>}
            </div>
          }
        >
          {({ cursor }) => (
            <Events events={kept.events} hasMore={cursor !== undefined} isOfWatch={watchId !== ''} />
          )}
        </Panel>
      </div>
    </>
  )
}

function Select({
  label,
  value,
  options,
  onChange,
}: {
  label: string
  value: string
  options: readonly (readonly [string, string])[]
  onChange: (value: string) => void
}) {
  return (
    <label class="range">
      <span class="visually-hidden">{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([each, name]) => (
          <option key={each} value={each}>
            {name}
          </option>
        ))}
      </select>
    </label>
  )
}

/** Calls a second between the last two answers. The counts are exact; what is listed below is a window of memory. */
function Rates({ recent: { data, at }, isPaused }: { recent: Loaded<ListRecentReply>; isPaused: boolean }) {
  const before = useRef<{ passed: number; refused: number; at: number; server: string } | null>(null)
  const [rates, setRates] = useState<{ passed: number; refused: number } | null>(null)
  useEffect(() => {
    if (data === null) return
    const { passed, refused, server } = data
    const last = before.current
    before.current = { passed, refused, at, server }
    // Servers behind one address count apart.
    if (last === null || at <= last.at || server !== last.server) return
    const perSecond = (now: number, then: number) => Math.max(0, ((now - then) * 1000) / (at - last.at))
    setRates({ passed: perSecond(passed, last.passed), refused: perSecond(refused, last.refused) })
  }, [data, at])
  if (data === null) return null
  return (
    <div class="rates">
      <dl class="figures live">
        <div>
          <dt>passed a second</dt>
          <dd>{rates === null ? '–' : exact(Math.round(rates.passed))}</dd>
        </div>
        <div>
          <dt>refused a second</dt>
          <dd>{rates === null ? '–' : exact(Math.round(rates.refused))}</dd>
        </div>
        <div>
          <dt>passed since the server started</dt>
          <dd class="small">{exact(data.passed)}</dd>
        </div>
        <div>
          <dt>refused since then</dt>
          <dd class="small">{exact(data.refused)}</dd>
        </div>
        <div>
          <dt>remembered without a gap</dt>
          <dd class="small">since {seconds(data.since)}</dd>
        </div>
      </dl>
      <p class="secondary">
        {isPaused ? `Paused at ${seconds(at)}.` : 'Again every 2 s.'} From the memory of{' '}
        <OfServer id={data.server} />. A restart forgets it.
        {!data.isComplete && ' A thread did not answer: some events are missing.'}
      </p>
    </div>
  )
}

/** What was there when the list was opened. What came since is counted, and shown when asked for: rows never move. */
function useKept(latest: readonly RecentEvent[], filterKey: string) {
  const [kept, setKept] = useState<{ filterKey: string; events: readonly RecentEvent[] }>({
    filterKey,
    events: [],
  })
  const own = kept.filterKey === filterKey ? kept.events : []
  // Nothing can move while nothing is shown.
  const events = own.length === 0 ? latest : own
  const show = () => setKept({ filterKey, events: latest })
  useEffect(() => {
    if (own.length === 0 && latest.length > 0) show()
  })
  const newest = latest.findIndex(({ id }) => id === events[0]?.id)
  const isMore = newest === -1 && events.length > 0 && latest.length > 0
  return { events, show, isMore, news: isMore ? latest.length : Math.max(0, newest) }
}

function Events({
  events,
  hasMore,
  isOfWatch,
}: {
  events: readonly RecentEvent[]
  hasMore: boolean
  isOfWatch: boolean
}) {
  if (events.length === 0)
    return (
      <p class="empty">
        {isOfWatch
          ? 'Nothing came yet.'
          : 'Nothing is remembered since this server started. Calls appear here as they come in.'}
      </p>
    )
  return (
    <>
      <EventTable events={events} label="Events" />
      {hasMore && (
        <p class="secondary below">
          The newest {exact(ROWS)}. Choose an outcome or a namespace to see others.
        </p>
      )}
    </>
  )
}

function RefusedMost({ rows }: { rows: ListRecentReply['refusedMost'] }) {
  if (rows.length === 0) return <p class="empty">Nothing was refused in the last minute.</p>
  return (
    <ul class="rows">
      {rows.map((row) => (
        <li key={`${row.outcome} ${row.key?.id ?? row.namespace?.id} ${row.identifier ?? ''}`}>
          <Subject event={row} />
          <Outcome code={row.outcome} />
          <span class="number">{exact(row.count)}</span>
        </li>
      ))}
    </ul>
  )
}

function Watches({ watches, onChange }: { watches: ListWatchesReply['watches']; onChange: () => void }) {
  const now = useNow()
  const [isAdding, setAdding] = useState(false)
  const { start: stop, failed } = useActionOf(
    (watchId: string) => ask('events.unwatch', { watchId }),
    onChange,
  )
  const { start: save, failed: unsaved } = useActionOf(saveWatch, () => {})
  return (
    <>
      {watches.length === 0 ? (
        <p class="empty">
          A busy server forgets within seconds. A watch keeps every event of one key, identity or identifier
          for 15 minutes.
        </p>
      ) : (
        <ul class="rows">
          {watches.map(({ id, keyId, identity, namespace, identifier, kept, missed, endsAt }) => {
            const subject = keyId ?? identity ?? shown(identifier ?? '')
            return (
              <li key={id} class="watch">
                <span class="what">
                  <b>{subject}</b>
                  <span class="secondary">
                    {namespace !== undefined && `${namespace.name}, `}
                    {exact(kept)} kept{missed > 0 && `, ${exact(missed)} more came when it was full`},{' '}
                    {endsAt > now ? `${left(endsAt, now)} left` : 'ended'}
                  </span>
                </span>
                <span class="actions">
                  <Button onClick={() => setQuery({ watch: id })}>
                    Open<span class="visually-hidden"> the watch of {subject}</span>
                  </Button>
                  <Button icon="download" onClick={() => void save(id)}>
                    CSV<span class="visually-hidden"> of the watch of {subject}</span>
                  </Button>
                  <Button onClick={() => void stop(id)}>
                    Stop<span class="visually-hidden"> the watch of {subject}</span>
                  </Button>
                </span>
              </li>
            )
          })}
        </ul>
      )}
      {failed !== null && <Failure failed={failed} />}
      {unsaved !== null && <Failure failed={unsaved} />}
      <div class="below">
        <Button icon="eye" lacking={lackingWatch()} onClick={() => setAdding(true)}>
          Watch…
        </Button>
      </div>
      {isAdding && <AddWatch onClose={() => setAdding(false)} onDone={onChange} />}
    </>
  )
}

/** As `useAction`, of an action with an argument. */
function useActionOf<A>(run: (argument: A) => Promise<unknown>, onDone: () => void) {
  const argument = useRef<A | null>(null)
  const action = useAction(async () => {
    if (argument.current === null) return
    await run(argument.current)
    onDone()
  })
  return {
    ...action,
    start: (given: A) => {
      argument.current = given
      return action.start()
    },
  }
}

/** All pages of it: up to 10 000 events for each thread of the server. */
async function saveWatch(watchId: string): Promise<void> {
  const events: RecentEvent[] = []
  for (let cursor: string | undefined; ; ) {
    const page = await ask('events.listRecent', {
      watchId,
      outcome: 'all',
      limit: 1000,
      ...(cursor !== undefined && { cursor }),
    })
    events.push(...page.events)
    cursor = page.cursor
    if (cursor === undefined) break
  }
  saveCsv(`${watchId}.csv`, rowsOf(events.reverse()))
}

const KINDS = [
  { value: 'keyId', name: 'A key, by its id' },
  { value: 'identity', name: 'An identity, by its id or your external id' },
  { value: 'identifier', name: 'An identifier in a namespace' },
] as const

function AddWatch({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [kind, setKind] = useState<string>('keyId')
  const [text, setText] = useState('')
  const [namespaceName, setNamespaceName] = useState('')
  return (
    <FormDialog
      title="Watch"
      button="Watch for 15 min"
      icon="eye"
      onClose={onClose}
      run={async () => {
        await ask('events.watch', {
          [kind]: kind === 'identifier' ? text : text.trim(),
          ...(kind === 'identifier' && { namespaceName }),
        })
        onDone()
      }}
    >
      <Choice label="What" value={kind} options={KINDS} onChange={setKind} />
      {kind === 'identifier' && (
        <Field label="Namespace" value={namespaceName} onInput={setNamespaceName} required maxLength={512} />
      )}
      <Field
        label={kind === 'keyId' ? 'Key id' : kind === 'identity' ? 'Identity' : 'Identifier'}
        value={text}
        onInput={setText}
        required
        maxLength={1024}
      />
    </FormDialog>
  )
}
