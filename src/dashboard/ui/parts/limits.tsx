import { useEffect, useState } from 'preact/hooks'
import type { RecentEvent } from '../../../doors/v1/events/schema.ts'
import type { GetWindowsReply, ListNearLimitReply } from '../../../doors/v1/ratelimits/schema.ts'
import { CallFailed } from '../api.ts'
import { dayAndTime, exact, utc } from '../format.ts'
import { ask, holds, lacking, within } from '../session.ts'
import { CardHead, CardRow } from './card.tsx'
import type { Series } from './chart.tsx'
import { Button, Failure, Field, useAction } from './controls.tsx'
import { FormDialog } from './dialog.tsx'
import { pathOfIdentifier } from './identifier-path.ts'
import { OUTCOMES } from './outcomes.ts'

/** Decisions of namespaces have the colours of the outcomes that they are. */
export const decisionSeries = (points: readonly { passed: number; denied: number }[]): readonly Series[] => [
  { name: 'Passed', className: 's1', values: points.map(({ passed }) => passed) },
  { name: 'Refused', className: 's2', values: points.map(({ denied }) => denied) },
]

const UNITS = [
  { ms: 86_400_000, name: 'day' },
  { ms: 3_600_000, name: 'hour' },
  { ms: 60_000, name: 'min' },
  { ms: 1000, name: 's' },
]

/** `min`, `2 h`, as in "10 per min". */
export function span(ms: number): string {
  const unit = UNITS.find((each) => ms % each.ms === 0)
  if (unit === undefined) return `${exact(ms)} ms`
  const count = ms / unit.ms
  return count === 1
    ? unit.name
    : `${exact(count)} ${unit.name}${count > 1 && unit.ms >= 3_600_000 ? 's' : ''}`
}

/** `22 s`, `3 min`, until a time. */
export function left(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000))
  if (seconds < 100) return `${seconds} s`
  const minutes = Math.ceil(seconds / 60)
  if (minutes < 100) return `${minutes} min`
  const hours = Math.ceil(minutes / 60)
  return hours < 48 ? `${hours} h` : `${Math.ceil(hours / 24)} days`
}

/** The time, again each second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}

export const namespacePath = (namespaceId: string) => within(`limits/${encodeURIComponent(namespaceId)}`)
export const identifierPath = (namespaceId: string, identifier: string) =>
  `${namespacePath(namespaceId)}/${pathOfIdentifier(identifier)}`
export const whyOf = (subject: Record<string, string>) => within(`why?${new URLSearchParams(subject)}`)

/** A text that may be empty. */
export const shown = (identifier: string) => (identifier === '' ? '(empty text)' : identifier)

/** Of a window: how much is used, as figures and as a bar. */
export function Used({ used, limit }: { used: number; limit: number }) {
  const isFull = used >= limit
  return (
    <span class={isFull ? 'used full' : 'used'}>
      <progress max={Math.max(1, limit)} value={Math.min(used, limit)} aria-label="used of the limit" />
      <span class="number">
        {exact(used)} of {exact(limit)}
      </span>
    </span>
  )
}

/** Identifiers near their limit. */
export function NearLimit({
  identifiers,
  isOfOne = false,
}: {
  identifiers: ListNearLimitReply['identifiers']
  /** All are of one namespace. */
  isOfOne?: boolean
}) {
  const now = useNow()
  const open = identifiers.filter(({ reset }) => reset > now)
  if (open.length === 0)
    return (
      <p class="empty">
        Nobody has less than a tenth of a limit left. Identifiers appear here as their calls come in.
      </p>
    )
  return (
    <ul class="rows near">
      {open.map(({ namespace, identifier, limit, duration, used, reset, refused }) => (
        <li key={`${namespace.id} ${limit} ${duration} ${identifier}`}>
          <span class="what">
            <a href={identifierPath(namespace.id, identifier)}>{shown(identifier)}</a>
            <span class="secondary">
              {isOfOne ? '' : `${namespace.name}, `}per {span(duration)}
              {refused > 0 && `, refused ${exact(refused)}`}
            </span>
          </span>
          <Used used={used} limit={limit} />
          <span class="number secondary" title={`opens again ${utc(reset)}`}>
            {left(reset, now)}
          </span>
        </li>
      ))}
    </ul>
  )
}

/** The windows of an identifier. */
export function Windows({ windows }: { windows: GetWindowsReply['windows'] }) {
  const now = useNow()
  if (windows.length === 0)
    return (
      <p class="empty">
        This server has seen no call of the namespace since it started, so it does not know which limits are
        asked for. After the next call the windows are here.
      </p>
    )
  return (
    <div class="scroll-x">
      <table>
        <thead>
          <tr>
            <th scope="col">Limit</th>
            <th scope="col">Used now</th>
            <th scope="col" class="extra">
              Opens again
            </th>
          </tr>
        </thead>
        <tbody>
          {windows.map((window) => (
            <tr key={`${window.askedLimit} ${window.askedDuration} ${window.isShared}`}>
              <th scope="row" class="wrap">
                {exact(window.limit)} per {span(window.duration)}
                <span class="secondary">
                  {(window.limit !== window.askedLimit || window.duration !== window.askedDuration) &&
                    ` instead of ${exact(window.askedLimit)} per ${span(window.askedDuration)}`}
                  {window.isShared && ' (v2: whatever limit calls ask for)'}
                </span>
              </th>
              <td>
                <Used used={window.used} limit={window.limit} />
                <span class="phone secondary">{opens(window, now)}</span>
              </td>
              <td class="extra" title={utc(window.reset)}>
                {opens(window, now)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

const opens = ({ used, reset }: { used: number; reset: number }, now: number) =>
  used === 0 ? 'not in use' : `in ${left(reset, now)}`

/** Sets an override. An exact identifier wins over a pattern, a longer pattern over a shorter one. */
export function OverrideDialog({
  namespaceId,
  identifier = null,
  now = null,
  onClose,
  onDone,
}: {
  namespaceId: string
  /** Null = it is asked for. */
  identifier?: string | null
  /** What applies now. */
  now?: { limit: number; duration: number } | null
  onClose: () => void
  onDone: () => void
}) {
  const [who, setWho] = useState(identifier ?? '')
  const [limit, setLimit] = useState(now === null ? '' : String(now.limit))
  const [seconds, setSeconds] = useState(now === null ? '60' : String(now.duration / 1000))
  return (
    <FormDialog
      title="Override"
      button="Set override"
      icon="check"
      lacking={lacking('ratelimit.*.set_override')}
      onClose={onClose}
      run={async () => {
        await ask('ratelimits.setOverride', {
          namespaceId,
          identifier: who,
          limit: Number(limit),
          duration: Math.round(Number(seconds) * 1000),
        })
        onDone()
      }}
    >
      {identifier === null ? (
        <Field
          label="Identifier or pattern"
          value={who}
          onInput={setWho}
          required
          maxLength={1024}
          hint="A * stands for any text. An exact identifier wins over a pattern, a longer pattern over a shorter one."
        />
      ) : (
        <p>
          For <b class="wrap">{shown(identifier)}</b>, instead of what calls ask for. It counts from the next
          call on.
        </p>
      )}
      <div class="line">
        <Field
          label="Tokens in a window"
          value={limit}
          onInput={setLimit}
          required
          isNumber
          hint="0 refuses every call."
        />
        <Field label="Window, seconds" value={seconds} onInput={setSeconds} required isNumber />
      </div>
    </FormDialog>
  )
}

const MORE = { PASSED: { name: 'Passed', series: 's1' } } as const
/** Mark, colour and words of an outcome. */
export function Outcome({ code }: { code: RecentEvent['outcome'] }) {
  const known = code === 'PASSED' ? MORE.PASSED : OUTCOMES.find((each) => each.code === code)
  return (
    <span class="outcome" title={code}>
      <span class={`swatch ${known?.series ?? ''}`} aria-hidden="true" />
      {known?.name ?? code}
    </span>
  )
}

/** Who an event is about, as a link to what explains it. */
export function Subject({
  event,
}: {
  event: Pick<RecentEvent, 'key' | 'identity' | 'namespace' | 'identifier'>
}) {
  const { key, identity, namespace, identifier } = event
  if (key !== undefined)
    return (
      <span class="what">
        <a href={whyOf({ key: key.id })} title={key.id}>
          {key.name ?? key.id}
        </a>
        {identity !== undefined && <span class="secondary">{identity.externalId}</span>}
      </span>
    )
  if (namespace === undefined || identifier === undefined) return null
  return (
    <span class="what">
      <a href={identifierPath(namespace.id, identifier)}>{shown(identifier)}</a>
      <span class="secondary">{namespace.name}</span>
    </span>
  )
}

const MILLISECONDS = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
})
export const exactTime = (at: number): string => MILLISECONDS.format(at)

export function At({ time }: { time: number }) {
  return (
    <time dateTime={utc(time)} title={`${dayAndTime(time)} (${utc(time)})`}>
      {exactTime(time)}
    </time>
  )
}

/**
 * One event a row.
 * @param isOfOne All are of one key or identifier, which the screen names.
 */
export function EventTable({
  events,
  label,
  isOfOne = false,
}: {
  events: readonly RecentEvent[]
  label: string
  isOfOne?: boolean
}) {
  return (
    <div class="scroll-x">
      <table class="recent" aria-label={label}>
        <thead>
          <tr>
            <th scope="col" class="extra">
              Time
            </th>
            <th scope="col">Outcome</th>
            {!isOfOne && <th scope="col">Who</th>}
            <th scope="col" class="extra">
              Limit
            </th>
            {!isOfOne && (
              <th scope="col" class="extra">
                Request
              </th>
            )}
            <th scope="col">
              <span class="visually-hidden">Explain</span>
            </th>
            <CardHead />
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <CardRow
              key={event.id}
              name={event.requestId}
              columns={isOfOne ? 4 : 6}
              facts={[
                { name: 'Limit', value: limitOf(event) },
                { name: 'Request', value: <code>{event.requestId}</code> },
              ]}
            >
              <td class="extra">
                <At time={event.time} />
              </td>
              <td>
                <Outcome code={event.outcome} />
                <span class="phone secondary">
                  <At time={event.time} />
                </span>
              </td>
              {!isOfOne && (
                <td class="wrap">
                  <Subject event={event} />
                </td>
              )}
              <td class="extra wrap">{limitOf(event)}</td>
              {!isOfOne && (
                <td class="extra">
                  <code>{event.requestId}</code>
                </td>
              )}
              <td class="number">
                <a href={whyOf({ request: event.requestId })} aria-label={`Why? ${event.requestId}`}>
                  Why?
                </a>
              </td>
            </CardRow>
          ))}
        </tbody>
      </table>
    </div>
  )
}

const limitOf = ({ ratelimit }: RecentEvent) =>
  ratelimit === undefined ? '–' : <LimitOf ratelimit={ratelimit} />

const LimitOf = ({ ratelimit }: { ratelimit: NonNullable<RecentEvent['ratelimit']> }) => (
  <>
    {ratelimit.name !== undefined && `${ratelimit.name}: `}
    {exact(ratelimit.remaining)} left of {exact(ratelimit.limit)} per {span(ratelimit.duration)}
  </>
)

/** For a file. */
export const rowsOf = (events: readonly RecentEvent[]): string[][] => [
  [
    ...['time', 'requestId', 'outcome', 'keyId', 'keyName', 'identity', 'namespace', 'identifier', 'limit'],
    ...['remaining', 'cost', 'tags', 'address'],
  ],
  ...events.map(
    ({ time, requestId, outcome, key, identity, namespace, identifier, ratelimit, cost, tags, address }) => [
      utc(time),
      requestId,
      outcome,
      key?.id ?? '',
      key?.name ?? '',
      identity?.externalId ?? '',
      namespace?.name ?? '',
      identifier ?? '',
      ratelimit === undefined ? '' : String(ratelimit.limit),
      ratelimit === undefined ? '' : String(ratelimit.remaining),
      String(cost),
      (tags ?? []).join(' '),
      address ?? '',
    ],
  ),
]

const MAY_WATCH = ['api.*.read_key', 'ratelimit.*.read_namespace']
/** Why watching is off; null = it is on. */
export const lackingWatch = (): string | null => {
  const missing = MAY_WATCH.find((each) => !holds(each))
  return missing === undefined ? null : `needs ${missing}`
}

/** Begins a watch, and says so in its place. */
export function WatchButton({ subject }: { subject: Record<string, string> }) {
  const [until, setUntil] = useState<number | null>(null)
  const { start, isBusy, failed } = useAction(async () => {
    setUntil((await ask('events.watch', subject)).endsAt)
  })
  if (until !== null)
    return (
      <p role="status" class="secondary">
        Watching until {exactTime(until).slice(0, 5)}: see <a href={within('live')}>Live</a>
      </p>
    )
  return (
    <>
      <Button icon="eye" isBusy={isBusy} lacking={lackingWatch()} onClick={() => void start()}>
        Watch for 15 min
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </>
  )
}

/** A call that is fine to be refused for a missing right: the rest of the page does without it. */
export async function orNull<T>(wanted: Promise<T>): Promise<T | null> {
  try {
    return await wanted
  } catch (cause) {
    if (
      cause instanceof CallFailed &&
      (cause.code === 'INSUFFICIENT_PERMISSIONS' || cause.code === 'NOT_FOUND')
    )
      return null
    throw cause
  }
}
