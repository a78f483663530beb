import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { ListRecentReply, RecentEvent } from '../../../doors/v1/events/schema.ts'
import type { ExplainKeyReply, KeyObject } from '../../../doors/v1/keys/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, fromNow, utc } from '../format.ts'
import { Breakable } from '../parts/breakable.tsx'
import { CallText } from '../parts/call.tsx'
import { Bars } from '../parts/chart.tsx'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { FormDialog } from '../parts/dialog.tsx'
import { Choice } from '../parts/form.tsx'
import { Icon } from '../parts/icons.tsx'
import {
  At,
  EventTable,
  identifierPath,
  Outcome,
  OverrideDialog,
  orNull,
  shown,
  span,
  WatchButton,
  Windows,
  whyOf,
} from '../parts/limits.tsx'
import { OUTCOMES } from '../parts/outcomes.ts'
import { Panel } from '../parts/panel.tsx'
import { OfServer } from '../parts/servers.tsx'
import { useTitle } from '../parts/title.tsx'
import { go, place } from '../route.ts'
import { ask, lacking, lackingOn, within, workspaceId } from '../session.ts'
import { Checks } from './key-checks.tsx'
import { Decisions } from './limits.tsx'

/** Who was refused: what the other panels are about. */
type Who =
  | { kind: 'key'; keyId: string }
  | { kind: 'identity'; identity: string }
  | { kind: 'identifier'; namespaceId: string; identifier: string }

/** Why was this call refused, and would it be now? Asking takes and counts nothing. */
export function Why() {
  const heading = useTitle('Why refused?')
  const { query } = place.value
  const requestId = query.get('request')
  const asked = whoIn(query)
  const about = JSON.stringify({ workspace: workspaceId.value, requestId, asked })
  const [isNothing, filter] = [requestId === null && asked === null, filterOf(requestId, asked)]
  const recent = useData(
    `why ${about}`,
    async (options) =>
      isNothing
        ? null
        : await ask('events.listRecent', { ...filter, limit: requestId === null ? 10 : 100 }, options),
    { everyMs: requestId === null && !isNothing ? 2_000 : null },
  )
  const who = asked ?? whoOf(recent.data?.events ?? [])
  return (
    <>
      <div class="head">{heading}</div>
      <Ask key={about} />
      {isNothing ? (
        <p class="empty">
          Each answer of the API carries a request id, <code>req_…</code>, also those of refused calls: paste
          it above. Without one, look up the key, the identity or the identifier that was refused, or choose a
          call in <a href={within('live')}>Live</a>.
        </p>
      ) : (
        <div class="panels">
          <Panel title={requestId === null ? 'Last refusals' : 'The call'} loaded={recent} isWide>
            {(data) => data !== null && <Remembered data={data} requestId={requestId} who={who} />}
          </Panel>
          {who !== null && (
            <Explained key={JSON.stringify(who)} who={who} events={recent.data?.events ?? []} />
          )}
        </div>
      )}
    </>
  )
}

function whoIn(query: URLSearchParams): Who | null {
  const [keyId, identity, identifier] = [query.get('key'), query.get('identity'), query.get('identifier')]
  const namespaceId = query.get('namespace')
  if (keyId !== null) return { kind: 'key', keyId }
  if (identity !== null) return { kind: 'identity', identity }
  if (namespaceId !== null && identifier !== null) return { kind: 'identifier', namespaceId, identifier }
  return null
}

function filterOf(requestId: string | null, who: Who | null): Record<string, string> {
  if (requestId !== null) return { requestId, outcome: 'all' }
  switch (who?.kind) {
    case 'key':
      return { keyId: who.keyId }
    case 'identity':
      return { identity: who.identity }
    case 'identifier':
      return { namespaceId: who.namespaceId, identifier: who.identifier }
    default:
      return {}
  }
}

/** Of a request with several limits: the one that was refused. */
function whoOf(events: readonly RecentEvent[]): Who | null {
  const event = events.find(({ outcome }) => outcome !== 'PASSED' && outcome !== 'VALID') ?? events[0]
  if (event?.key !== undefined) return { kind: 'key', keyId: event.key.id }
  if (event?.namespace !== undefined && event.identifier !== undefined)
    return { kind: 'identifier', namespaceId: event.namespace.id, identifier: event.identifier }
  return null
}

const KINDS = [
  { value: 'request', name: 'Request id' },
  { value: 'key', name: 'Key id' },
  { value: 'identity', name: 'Identity' },
  { value: 'identifier', name: 'Identifier' },
] as const

/** What is asked about. The kind is read from the text where it says so itself. */
function Ask() {
  const { query } = place.value
  const given = KINDS.find(({ value }) => query.has(value))?.value
  const [kind, setKind] = useState<string>(given ?? 'request')
  const [text, setText] = useState(query.get(given ?? 'request') ?? '')
  const [namespaceName, setNamespaceName] = useState('')
  const namespaceId = query.get('namespace')
  useEffect(() => {
    if (namespaceId === null) return
    const stopping = new AbortController()
    const options = { signal: stopping.signal }
    orNull(ask('ratelimits.getWindows', { namespaceId, identifier: '' }, options)).then(
      (found) => setNamespaceName(found?.namespace.name ?? namespaceId),
      () => {},
    )
    return () => stopping.abort()
  }, [namespaceId])
  const read = (value: string) => {
    setText(value)
    if (/^req_\w{8,}$/.test(value.trim())) setKind('request')
    if (/^key_\w{8,}$/.test(value.trim())) setKind('key')
  }
  const { start, isBusy, failed } = useAction(async () => {
    if (kind !== 'identifier') return go(whyOf({ [kind]: text.trim() }))
    const { namespace } = await ask('ratelimits.getWindows', { namespaceName, identifier: text })
    go(whyOf({ namespace: namespace.id, identifier: text }))
  })
  return (
    <form
      class="line ask"
      onSubmit={(event) => {
        event.preventDefault()
        void start()
      }}
    >
      <Choice label="Look up by" value={kind} options={KINDS} onChange={setKind} />
      {kind === 'identifier' && (
        <Field label="Namespace" value={namespaceName} onInput={setNamespaceName} required maxLength={512} />
      )}
      <Field
        label={KINDS.find(({ value }) => value === kind)?.name ?? ''}
        value={text}
        onInput={read}
        required={kind !== 'identifier'}
        maxLength={1024}
        placeholder={kind === 'request' ? 'req_…' : kind === 'key' ? 'key_…' : ''}
      />
      <Button type="submit" kind="main" icon="search" isBusy={isBusy}>
        Explain
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </form>
  )
}

function Remembered({
  data: { events, since, server },
  requestId,
  who,
}: {
  data: ListRecentReply
  requestId: string | null
  who: Who | null
}) {
  const [event] = events
  if (event === undefined)
    return (
      <div class="stack">
        <p class="empty">
          {requestId === null ? 'No refusal is remembered.' : 'This request is not remembered.'} Refusals are
          remembered since <span title={utc(since)}>{dayAndTime(since)}</span>, in the memory of{' '}
          <OfServer id={server} />. Another server may have answered the call.
          {requestId === null
            ? ''
            : ' A verification of a key that does not exist (NOT_FOUND) is never remembered.'}
        </p>
        {who !== null && <Watch who={who} />}
      </div>
    )
  return (
    <div class="stack">
      {requestId === null ? (
        <EventTable events={events} label="Last refusals" isOfOne={who?.kind !== 'identity'} />
      ) : (
        events.map((each) => <Facts key={each.id} event={each} />)
      )}
      <p class="secondary">
        From the memory of <OfServer id={server} />.
      </p>
      {who !== null && <Watch who={who} />}
    </div>
  )
}

const subjectOf = (who: Who): Record<string, string> => {
  const { kind, ...subject } = who
  return subject
}
const Watch = ({ who }: { who: Who }) => (
  <div>
    <WatchButton subject={subjectOf(who)} />
  </div>
)

const SENTENCES: Record<RecentEvent['outcome'], string> = {
  VALID: 'It passed.',
  PASSED: 'It passed.',
  RATE_LIMITED: 'A rate limit had fewer tokens left than the call asked for.',
  USAGE_EXCEEDED: 'The key had fewer credits left than the call asked for.',
  INSUFFICIENT_PERMISSIONS: 'The key did not hold the permissions that the call asked for.',
  DISABLED: 'The key was disabled.',
  FORBIDDEN: 'The key belongs to another API, or the address is not on the API’s list.',
  EXPIRED: 'The key had expired.',
}

/** One remembered call. */
function Facts({ event }: { event: RecentEvent }) {
  const { outcome, time, key, identity, namespace, identifier, ratelimit, cost, credits, tags, address } =
    event
  return (
    <>
      <p class="verdict">
        <Outcome code={outcome} /> <span>{SENTENCES[outcome]}</span>
      </p>
      <dl class="of-refusal">
        <Fact name="When">
          <At time={time} /> <span class="secondary">{fromNow(time)}</span>
        </Fact>
        {key !== undefined && (
          <Fact name="Key">
            {key.name ?? ''} <code>{key.id}</code>
          </Fact>
        )}
        {identity !== undefined && <Fact name="Identity">{identity.externalId}</Fact>}
        {namespace !== undefined && <Fact name="Namespace">{namespace.name}</Fact>}
        {namespace !== undefined && identifier !== undefined && (
          <Fact name="Identifier">
            <a href={identifierPath(namespace.id, identifier)}>{shown(identifier)}</a>
          </Fact>
        )}
        {ratelimit !== undefined && (
          <Fact name="Limit">
            {ratelimit.name !== undefined && `${ratelimit.name}: `}
            {exact(ratelimit.limit)} per {span(ratelimit.duration)}, {exact(ratelimit.remaining)} left
          </Fact>
        )}
        <Fact name="Asked for">{counted(cost, key === undefined ? 'token' : 'credit')}</Fact>
        {credits !== undefined && <Fact name="Credits left">{exact(credits)}</Fact>}
        {tags !== undefined && tags.length > 0 && <Fact name="Tags">{tags.join(', ')}</Fact>}
        {address !== undefined && (
          <Fact name="Address">
            <code>{address}</code>
          </Fact>
        )}
      </dl>
    </>
  )
}

const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
)

function Explained({ who, events }: { who: Who; events: readonly RecentEvent[] }) {
  switch (who.kind) {
    case 'key':
      return (
        <ExplainedKey
          keyId={who.keyId}
          address={events.find(({ address }) => address !== undefined)?.address}
        />
      )
    case 'identity':
      return <KeysOfIdentity identity={who.identity} />
    case 'identifier':
      return <ExplainedIdentifier {...who} />
    default:
      return who satisfies never
  }
}

function ExplainedKey({ keyId, address }: { keyId: string; address: string | undefined }) {
  const key = useData(`key ${keyId}`, (options) => ask('keys.getKey', { keyId }, options))
  const checks = useData(
    `explain ${keyId} ${address ?? ''}`,
    (options) =>
      ask('keys.explainKey', { keyId, ...(address !== undefined && { ipAddress: address }) }, options),
    { everyMs: 5_000 },
  )
  const hours = useData(`refused ${keyId} ${key.data?.apiId ?? ''}`, async (options) => {
    const apiId = key.data?.apiId
    if (apiId === undefined) return null
    const start = Date.now() - 47 * 3_600_000
    return await ask(
      'analytics.getVerifications',
      { apiId, keyId: [keyId], groupBy: ['hour'], start },
      options,
    )
  })
  const reload = () => {
    key.reload()
    checks.reload()
  }
  return (
    <>
      <Panel
        title={address === undefined ? 'Would it pass now?' : `Would it pass now, from ${address}?`}
        loaded={checks}
      >
        {(data) => (
          <Verdict
            data={data}
            keyId={keyId}
            apiId={key.data?.apiId ?? null}
            identityId={key.data?.identity?.id ?? null}
            address={address ?? null}
            onChange={reload}
          />
        )}
      </Panel>
      <Audit resourceId={keyId} />
      <Panel title="Last 48 hours" loaded={hours} isWide>
        {(points) =>
          points === null || points.every(({ total }) => total === 0) ? (
            <p class="empty">The key was not verified in this time.</p>
          ) : (
            <Bars
              label="Verifications by hour"
              times={points.map(({ time = 0 }) => time)}
              series={OUTCOMES.map(({ field, name, series }) => ({
                name,
                className: series,
                values: points.map((point) => point[field]),
              }))}
              file={`${keyId}.csv`}
            />
          )
        }
      </Panel>
    </>
  )
}

function Verdict({
  data: { valid, checks },
  onChange,
  ...about
}: {
  data: ExplainKeyReply
  keyId: string
  apiId: string | null
  identityId: string | null
  address: string | null
  onChange: () => void
}) {
  return (
    <>
      <p class={valid ? 'answer ok' : 'answer bad'} role="status">
        <Icon name={valid ? 'check' : 'cross'} />
        {valid ? 'Yes, as far as it does not depend on the request.' : 'No.'}
      </p>
      <Checks
        checks={checks}
        actionOf={({ check, verdict, limit }) =>
          verdict !== 'refuses' ? null : limit === undefined ? (
            <Change check={check} {...about} onChange={onChange} />
          ) : (
            <ChangeLimit limit={limit} {...about} onChange={onChange} />
          )
        }
      />
    </>
  )
}

type KeyLimit = NonNullable<ExplainKeyReply['checks'][number]['limit']>

/** A key's own limit is changed here. One of its identity holds for other keys too, so it is changed where it says so. */
function ChangeLimit({
  limit,
  keyId,
  apiId,
  identityId,
  onChange,
}: {
  limit: KeyLimit
  keyId: string
  apiId: string | null
  identityId: string | null
  onChange: () => void
}) {
  const [isOpen, setOpen] = useState(false)
  if (limit.owner === 'identity')
    return identityId === null ? null : (
      <a class="button plain" href={within(`identities/${identityId}`)}>
        Limits of the identity
      </a>
    )
  return (
    <>
      <Button
        lacking={apiId === null ? lacking('api.*.update_key') : lackingOn(apiId, 'update_key')}
        onClick={() => setOpen(true)}
      >
        Change limit…
      </Button>
      {isOpen && <LimitDialog limit={limit} keyId={keyId} onClose={() => setOpen(false)} onDone={onChange} />}
    </>
  )
}

function LimitDialog({
  limit: now,
  keyId,
  onClose,
  onDone,
}: {
  limit: KeyLimit
  keyId: string
  onClose: () => void
  onDone: () => void
}) {
  const [limit, setLimit] = useState(String(now.limit))
  const [seconds, setSeconds] = useState(String(now.duration / 1000))
  const input = {
    keyId,
    ratelimit: {
      ...(now.name !== 'default' && { name: now.name }),
      limit: Number(limit),
      duration: Math.round(Number(seconds) * 1000),
    },
  }
  return (
    <FormDialog
      title={now.name === 'default' ? 'The key’s rate limit' : `The key’s limit ${now.name}`}
      button="Change limit"
      busy="Changing…"
      onClose={onClose}
      run={async () => {
        await ask('keys.updateKey', input)
        onDone()
      }}
    >
      <div class="line">
        <Field label="Verifications" value={limit} onInput={setLimit} isNumber required maxLength={16} />
        <Field label="In seconds" value={seconds} onInput={setSeconds} isNumber required maxLength={16} />
      </div>
      <p class="secondary">
        {exact(now.limit - now.remaining)} are used in this window. A higher limit lets the next calls
        through; another length begins a new window.
      </p>
      <CallText isFolded method="keys.updateKey" input={input} />
    </FormDialog>
  )
}

const EXTENDED_MS = 30 * 86_400_000
const CREDITS = 1000

type About = {
  check: ExplainKeyReply['checks'][number]['check']
  keyId: string
  apiId: string | null
  address: string | null
}

/** The button that changes what a check refuses for. */
function Change({ onChange, ...about }: About & { onChange: () => void }) {
  const change = changeOf(about)
  const { start, isBusy, failed } = useAction(async () => {
    await change?.run()
    onChange()
  })
  if (change === null) return null
  return (
    <>
      <Button lacking={lacking(change.permission)} isBusy={isBusy} onClick={() => void start()}>
        {change.name}
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </>
  )
}

function changeOf({
  check,
  keyId,
  apiId,
  address,
}: About): { name: string; permission: string; run: () => Promise<unknown> } | null {
  const permission = 'api.*.update_key'
  switch (check) {
    case 'enabled':
      return { name: 'Enable', permission, run: () => ask('keys.updateKey', { keyId, enabled: true }) }
    case 'expiry':
      return {
        name: 'Extend by 30 days',
        permission,
        run: () => ask('keys.updateKey', { keyId, expires: Date.now() + EXTENDED_MS }),
      }
    case 'credits':
      return {
        name: `Add ${CREDITS} credits`,
        permission,
        run: () => ask('keys.updateRemaining', { keyId, op: 'increment', value: CREDITS }),
      }
    case 'address':
      if (apiId === null || address === null) return null
      return {
        name: `Allow ${address}`,
        permission: 'api.*.update_api',
        run: async () => {
          const { ipWhitelist } = await ask('apis.getApi', { apiId })
          await ask('apis.updateApi', { apiId, ipWhitelist: [...(ipWhitelist ?? []), address] })
        },
      }
    default:
      return null
  }
}

function ExplainedIdentifier({ namespaceId, identifier }: { namespaceId: string; identifier: string }) {
  const [isChanging, setChanging] = useState(false)
  const by = { namespaceId, identifier }
  const windows = useData(
    `windows ${namespaceId} ${identifier}`,
    (options) => ask('ratelimits.getWindows', by, options),
    { everyMs: 2_000 },
  )
  const hours = useData(`refused ${namespaceId} ${identifier}`, (options) =>
    ask(
      'analytics.getRatelimits',
      { namespaceId, identifier: [identifier], groupBy: ['hour'], start: Date.now() - 47 * 3_600_000 },
      options,
    ),
  )
  const { override } = windows.data ?? {}
  return (
    <>
      <Panel
        title="Would it pass now?"
        loaded={windows}
        actions={
          <Button lacking={lacking('ratelimit.*.set_override')} onClick={() => setChanging(true)}>
            Override…
          </Button>
        }
      >
        {(data) => (
          <div class="stack">
            <p>
              {override === undefined ? (
                'No override: it gets the limit that calls ask for.'
              ) : (
                <>
                  The override <code>{override.identifier}</code> gives it {exact(override.limit)} per{' '}
                  {span(override.duration)}.
                </>
              )}
            </p>
            <Windows windows={data.windows} />
          </div>
        )}
      </Panel>
      <Audit resourceId={namespaceId} />
      <Panel title="Last 48 hours" loaded={hours} isWide>
        {(points) => <Decisions points={points} file="identifier.csv" />}
      </Panel>
      {isChanging && (
        <OverrideDialog
          {...by}
          now={windows.data?.windows[0] ?? null}
          onClose={() => setChanging(false)}
          onDone={windows.reload}
        />
      )}
    </>
  )
}

function KeysOfIdentity({ identity }: { identity: string }) {
  const found = useData(`keys of ${identity}`, (options) =>
    ask('keys.searchKeys', { search: identity, limit: 50 }, options),
  )
  const isOf = ({ identity: own, ownerId }: KeyObject) =>
    own?.id === identity || own?.externalId === identity || ownerId === identity
  return (
    <Panel title="Its keys" loaded={found} isWide>
      {({ keys }) => {
        const own = keys.filter(isOf)
        return own.length === 0 ? (
          <p class="empty">No key of this identity was found. Keys are found by your external id.</p>
        ) : (
          <ul class="rows">
            {own.map(({ id, name, start }) => (
              <li key={id}>
                <span class="what">
                  <a href={whyOf({ key: id })}>{name ?? id}</a>
                  <code>{start}…</code>
                </span>
              </li>
            ))}
          </ul>
        )
      }}
    </Panel>
  )
}

const WEEK_MS = 7 * 86_400_000

/** Who changed it in the last seven days. */
function Audit({ resourceId }: { resourceId: string }) {
  const events = useData(`audit ${resourceId}`, (options) =>
    ask(
      'audit.listEvents',
      { resourceId, start: Date.now() - WEEK_MS, limit: 100, order: 'newestFirst' },
      options,
    ),
  )
  return (
    <Panel title="Changed in the last 7 days" loaded={events}>
      {(data) => {
        const rows = data.events.toSorted((a, b) => b.time - a.time).slice(0, 20)
        if (rows.length === 0) return <p class="empty">Nobody changed it.</p>
        return (
          <ul class="rows">
            {rows.map(({ id, time, event, description, actor }) => (
              <li key={id}>
                <span class="what">
                  <b>
                    <Breakable text={event} />
                  </b>
                  <span class="secondary wrap">
                    {description}, by <code>{actor.id}</code>
                  </span>
                </span>
                <time class="secondary" dateTime={utc(time)} title={utc(time)}>
                  {fromNow(time)}
                </time>
              </li>
            ))}
          </ul>
        )
      }}
    </Panel>
  )
}
