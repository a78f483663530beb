import { useEffect, useRef, useState } from 'preact/hooks'
import type { ListEventsReply } from '../../../doors/v1/audit-events/schema.ts'
import type { ListRootKeysReply } from '../../../doors/v1/root-keys/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, seconds, utc } from '../format.ts'
import { Breakable } from '../parts/breakable.tsx'
import { Button, Failure, useAction } from '../parts/controls.tsx'
import { csvOf } from '../parts/csv.ts'
import { QueryField } from '../parts/form.tsx'
import { Panel } from '../parts/panel.tsx'
import { saveFile } from '../parts/save-csv.tsx'
import { Pager } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { toast } from '../parts/toast.tsx'
import { place, setQuery } from '../route.ts'
import { ask, holds, own, within, workspaceId } from '../session.ts'

type Event = ListEventsReply['events'][number]

const RANGES = [
  { value: '', name: 'Any time', days: null },
  { value: '1d', name: 'Last 24 hours', days: 1 },
  { value: '7d', name: 'Last 7 days', days: 7 },
  { value: '30d', name: 'Last 30 days', days: 30 },
] as const

/** Who changed what, newest first; an opened row shows each field before and after. */
export function Audit() {
  const heading = useTitle('Audit')
  const { query } = place.value
  const text = (name: string) => query.get(name) ?? ''
  const filterKey = ['event', 'actor', 'resource', 'range'].map(text).join(' ')
  const events = useData(`audit ${workspaceId.value} ${filterKey} ${text('after')}`, (options) =>
    ask('audit.listEvents', { ...filterOf(query), limit: 50, cursor: query.get('after') }, options),
  )
  const names = useNames()
  return (
    <>
      <div class="head">
        {heading}
        <Save key={filterKey} query={query} names={names} />
      </div>
      <div class="filters">
        <QueryField name="event" label="Event" placeholder="key.create" />
        <QueryField name="resource" label="Id of what was changed" placeholder="key_…, api_…, role_…" />
        <QueryField name="actor" label="Id of the root key" placeholder="key_…" />
        <div class="field">
          <label for="audit-range">Time</label>
          <select
            id="audit-range"
            value={text('range')}
            onChange={(event) => setQuery({ range: event.currentTarget.value, after: null })}
          >
            {RANGES.map(({ value, name }) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </div>
      </div>
      <Panel title="Events" loaded={events}>
        {({ events: rows, cursor }) => (
          <>
            {rows.length === 0 ? (
              <p class="empty">No event fits. Changes are listed here as soon as they are made.</p>
            ) : (
              <Events events={rows} names={names} />
            )}
            <Pager cursor={cursor}>
              {rows.length === 0 ? '' : `${rows.length} on this page, newest first`}
            </Pager>
          </>
        )}
      </Panel>
    </>
  )
}

/** The latest events of a thing, for its own screen. */
export function AuditOf({ resourceId }: { resourceId: string }) {
  const events = useData(`audit of ${workspaceId.value} ${resourceId}`, (options) =>
    ask('audit.listEvents', { resourceId, order: 'newestFirst', limit: 5 }, options),
  )
  const names = useNames()
  return (
    <Panel
      title="Audit"
      loaded={events}
      isWide
      actions={<a href={within(`audit?resource=${encodeURIComponent(resourceId)}`)}>All events</a>}
    >
      {({ events: rows }) =>
        rows.length === 0 ? <p class="empty">Nothing was changed.</p> : <Events events={rows} names={names} />
      }
    </Panel>
  )
}

function filterOf(query: URLSearchParams) {
  const range = RANGES.find(({ value }) => value === query.get('range'))
  const days = range?.days ?? null
  return {
    order: 'newestFirst',
    event: query.get('event'),
    actorId: query.get('actor'),
    resourceId: query.get('resource'),
    start: days === null ? null : Date.now() - days * 86_400_000,
  }
}

type Names = ReadonlyMap<string, string>

/** Names of root keys, which acted. Without the right to read them, their ids must do. */
function useNames(): Names {
  const loaded = useData<ListRootKeysReply | null>(`names ${workspaceId.value}`, async (options) =>
    holds('root_key.*.read_root_key') ? await ask('rootKeys.listRootKeys', { limit: 100 }, options) : null,
  )
  const names = new Map(loaded.data?.rootKeys.map(({ id, name }) => [id, name ?? id]))
  const self = own.value
  if (self !== null) names.set(self.rootKeyId, self.name ?? self.rootKeyId)
  return names
}

function Events({ events, names }: { events: readonly Event[]; names: Names }) {
  return (
    <ul class="events">
      {events.map((event) => (
        <li key={event.id}>
          <details>
            <summary>
              <time dateTime={utc(event.time)} title={utc(event.time)}>
                {dayAndTime(event.time).replace(/, .*/, '')}, {seconds(event.time)}
              </time>
              <code class="event">
                <Breakable text={event.event} />
              </code>
              <span class="what">{event.description}</span>
              <span class="who">{names.get(event.actor.id) ?? event.actor.id}</span>
            </summary>
            <EventDetails event={event} />
          </details>
        </li>
      ))}
    </ul>
  )
}

function EventDetails({ event }: { event: Event }) {
  const rows = fieldsOf(event)
  return (
    <div class="details">
      {rows.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it
        <section class="scrolling" tabIndex={0} aria-label="Fields before and after">
          <table class="changes">
            <thead>
              <tr>
                <th scope="col">Field</th>
                <th scope="col">Before</th>
                <th scope="col">After</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(({ id, field, before, after }) => (
                <tr key={`${id} ${field}`}>
                  <th scope="row">
                    {field} <span class="secondary">{id}</span>
                  </th>
                  <td>
                    <Value value={before} />
                  </td>
                  <td>
                    <Value value={after} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <dl class="facts">
        {event.resources.map(({ type, id, name }) => (
          <div key={`${type} ${id}`}>
            <dt>{type}</dt>
            <dd>
              {name !== undefined && `${name} `}
              <a href={within(`audit?resource=${encodeURIComponent(id)}`)}>
                <code>{id}</code>
              </a>
            </dd>
          </div>
        ))}
        <div>
          <dt>by root key</dt>
          <dd>
            <a href={within(`audit?actor=${encodeURIComponent(event.actor.id)}`)}>
              <code>{event.actor.id}</code>
            </a>
          </dd>
        </div>
        {event.location !== undefined && (
          <div>
            <dt>address</dt>
            <dd>{event.location}</dd>
          </div>
        )}
        {event.userAgent !== undefined && (
          <div>
            <dt>client</dt>
            <dd>{event.userAgent}</dd>
          </div>
        )}
        <div>
          <dt>event id</dt>
          <dd>
            <code>{event.id}</code>
          </dd>
        </div>
      </dl>
    </div>
  )
}

type FieldRow = { id: string; field: string; before: unknown; after: unknown }

/** Changed fields, and those of what is new or gone; undefined = there was none. */
const fieldsOf = ({ resources }: Event): FieldRow[] =>
  resources.flatMap(({ id, before, after }) =>
    Object.keys({ ...before, ...after }).map((field) => ({
      id,
      field,
      before: before?.[field],
      after: after?.[field],
    })),
  )

function Value({ value }: { value: unknown }) {
  if (value === undefined) return <span class="secondary">—</span>
  if (value === null) return <span class="secondary">not set</span>
  return <code>{typeof value === 'string' ? value : JSON.stringify(value)}</code>
}

/** Events that one file holds at most: some 30 MB, and a thousand calls. */
const SAVED_MAX = 100_000

/** Saves all events that the filters find, newest first, page by page. It can be stopped; leaving the screen stops it too. */
function Save({ query, names }: { query: URLSearchParams; names: Names }) {
  const [read, setRead] = useState<number | null>(null)
  const stopping = useRef<AbortController | null>(null)
  useEffect(() => () => stopping.current?.abort(), [])
  const { start, isBusy, failed } = useAction(async () => {
    const controller = new AbortController()
    stopping.current = controller
    setRead(0)
    try {
      const filter = filterOf(query)
      const parts = [lineOf([HEAD])]
      let count = 0
      let cursor: string | undefined
      do {
        const page = await ask(
          'audit.listEvents',
          { ...filter, limit: 100, ...(cursor !== undefined && { cursor }) },
          { signal: controller.signal },
        )
        if (page.events.length > 0) parts.push(lineOf(page.events.map((event) => cellsOf(event, names))))
        count += page.events.length
        cursor = page.cursor
        setRead(count)
      } while (cursor !== undefined && count < SAVED_MAX)
      saveFile('audit.csv', parts)
      toast(
        cursor === undefined
          ? `Saved ${counted(count, 'event')}.`
          : `Saved the newest ${exact(count)} events, the most for one file. For all: tollgate audit list.`,
      )
    } catch (cause) {
      if (!controller.signal.aborted) throw cause
    } finally {
      setRead(null)
    }
  })
  return (
    <>
      {isBusy && read !== null && (
        <>
          <p class="secondary" role="status">
            {exact(read)} events read
          </p>
          <Button icon="cross" onClick={() => stopping.current?.abort()}>
            Cancel
          </Button>
        </>
      )}
      <Button icon="download" isBusy={isBusy} onClick={() => void start()}>
        {isBusy ? 'Reading…' : 'CSV'}
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </>
  )
}

const HEAD = [
  'time',
  'event',
  'root key',
  'root key id',
  'description',
  'changes',
  'address',
  'client',
  'id',
] as const

const cellsOf = (event: Event, names: Names): string[] => [
  utc(event.time),
  event.event,
  names.get(event.actor.id) ?? '',
  event.actor.id,
  event.description,
  fieldsOf(event)
    .map(({ field, before, after }) => `${field}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`)
    .join('; '),
  event.location ?? '',
  event.userAgent ?? '',
  event.id,
]

const lineOf = (rows: readonly (readonly string[])[]) => `${csvOf(rows)}\r\n`
