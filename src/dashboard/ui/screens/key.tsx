import { useState } from 'preact/hooks'
import type { ListEventsReply } from '../../../doors/v1/audit-events/schema.ts'
import type { ExplainKeyReply, KeyObject } from '../../../doors/v1/keys/schema.ts'
import { CallFailed } from '../api.ts'
import { type Loaded, useData } from '../data.ts'
import { dayAndTime, exact, fromNow, seconds, utc } from '../format.ts'
import { Breakable } from '../parts/breakable.tsx'
import { CallText } from '../parts/call.tsx'
import { Bars } from '../parts/chart.tsx'
import { Button, CopyButton, Failure, Snippet, useAction } from '../parts/controls.tsx'
import { Confirm, Dialog, SecretDialog } from '../parts/dialog.tsx'
import { Choice } from '../parts/form.tsx'
import { Icon } from '../parts/icons.tsx'
import { isRecent, LastUsed } from '../parts/last-used.tsx'
import { EventTable, WatchButton, whyOf } from '../parts/limits.tsx'
import { Missing } from '../parts/missing.tsx'
import { OUTCOMES } from '../parts/outcomes.ts'
import { Panel } from '../parts/panel.tsx'
import { OtherServers } from '../parts/servers.tsx'
import { useTitle } from '../parts/title.tsx'
import { toast } from '../parts/toast.tsx'
import { partsOf, place, setQuery } from '../route.ts'
import { ask, lacking, lackingOn, within, workspaceId } from '../session.ts'
import { Checks } from './key-checks.tsx'
import { EditKey } from './key-form.tsx'
import { chipsOf, limitText, nameOf } from './key-state.ts'
import { TestKey } from './test-key.tsx'

/** One key: whether it would pass now, how it is used, what it may, and who changed it. */
export function Key() {
  const id = partsOf('keys/:id')?.id ?? ''
  const loaded = useData(`key ${workspaceId.value} ${id}`, ({ signal }) =>
    ask('keys.getKey', { keyId: id }, { signal }),
  )
  const { data, failed, reload } = loaded
  const heading = useTitle(data === null ? 'Key' : nameOf(data))
  const [isDeleted, setDeleted] = useState(false)
  if (isDeleted)
    return (
      <>
        <div class="head">{heading}</div>
        <div class="notice" role="status">
          <Icon name="check" />
          <div>
            <p>
              The key is deleted, and refused as NOT_FOUND. <a href={within('keys')}>All keys</a>
            </p>
            <OtherServers of={{ keyId: id }} />
          </div>
        </div>
      </>
    )
  if (data === null)
    return (
      <>
        <div class="head">{heading}</div>
        {failed === null ? (
          <p class="empty" role="status">
            Loading…
          </p>
        ) : failed.code === 'NOT_FOUND' ? (
          <Missing kind="key" id={id}>
            <a href={within('keys')}>All keys</a>
          </Missing>
        ) : failed.code === 'INSUFFICIENT_PERMISSIONS' ? (
          <p class="empty">Not shown: {failed.message}.</p>
        ) : (
          <Failure failed={failed} onRetry={reload} />
        )}
      </>
    )
  return <Shown record={data} heading={heading} reload={reload} onDeleted={() => setDeleted(true)} />
}

type Open = 'test' | 'edit' | 'rotate' | 'delete' | null

function Shown({
  record,
  heading,
  reload,
  onDeleted,
}: {
  record: KeyObject
  heading: preact.ComponentChildren
  reload: () => void
  onDeleted: () => void
}) {
  const { id, apiId } = record
  const [open, setOpen] = useState<Open>(null)
  const [checked, setChecked] = useState<{ text: string; at: number } | null>(null)
  const [count, setCount] = useState(0)
  const explained = useData(`explain ${id} ${count}`, ({ signal }) =>
    ask('keys.explainKey', { keyId: id }, { signal }),
  )
  const used = useData(`used ${id}`, ({ signal }) => ask('keys.getLastUsed', { keyId: [id] }, { signal }))
  const lastUsed = used.data?.keys[0]?.lastUsed
  const changed = () => {
    reload()
    setCount((before) => before + 1)
  }
  /** Says what a verification would answer now, after a change: seen, not hoped. */
  const check = async () => {
    const start = performance.now()
    const { valid, code } = await ask('keys.explainKey', { keyId: id })
    const ms = Math.max(1, Math.round(performance.now() - start))
    setChecked({
      text: `Checked: ${valid ? 'it would pass' : `refused, ${code}`}, seen ${ms} ms later.`,
      at: start,
    })
    changed()
  }
  const enable = useAction(async (enabled: boolean) => {
    await ask('keys.updateKey', { keyId: id, enabled })
    await check()
    toast(enabled ? 'Enabled.' : 'Disabled.', async () => {
      await ask('keys.updateKey', { keyId: id, enabled: !enabled })
      await check()
    })
  })
  const lacksUpdate = lackingOn(apiId, 'update_key')
  const chips = chipsOf(record)
  return (
    <>
      <p class="crumbs">
        <a href={within('keys')}>Keys</a>
      </p>
      <div class="head">
        {heading}
        <div class="actions">
          <Button icon="play" lacking={lackingOn(apiId, 'read_key')} onClick={() => setOpen('test')}>
            Test this key
          </Button>
          <Button icon="edit" lacking={lacksUpdate} onClick={() => setOpen('edit')}>
            Edit
          </Button>
          <Button icon="rotate" lacking={lackingOn(apiId, 'create_key')} onClick={() => setOpen('rotate')}>
            Rotate…
          </Button>
          <Button
            icon={record.enabled ? 'off' : 'check'}
            lacking={lacksUpdate}
            isBusy={enable.isBusy}
            onClick={() => void enable.start(!record.enabled)}
          >
            {enable.isBusy
              ? record.enabled
                ? 'Disabling…'
                : 'Enabling…'
              : record.enabled
                ? 'Disable'
                : 'Enable'}
          </Button>
          <Button
            kind="danger"
            icon="trash"
            lacking={lackingOn(apiId, 'delete_key')}
            onClick={() => setOpen('delete')}
          >
            Delete…
          </Button>
        </div>
      </div>
      <ul class="key-facts">
        <li>
          {chips.length === 0 ? (
            <span class="chip small ok">Active</span>
          ) : (
            chips.map(({ kind, text }) => (
              <span key={text} class={`chip small ${kind}`}>
                {text}
              </span>
            ))
          )}
        </li>
        <li>
          <code>{record.start}…</code>
        </li>
        <li>
          API <a href={within(`apis/${apiId}`)}>{apiId}</a>
        </li>
        {record.identity !== undefined && (
          <li>
            Identity <a href={within(`identities/${record.identity.id}`)}>{record.identity.externalId}</a>
          </li>
        )}
        {used.data !== null && (
          <li>
            Last used <LastUsed at={lastUsed} />
          </li>
        )}
      </ul>
      {checked !== null && (
        <div class="notice" role="status">
          <Icon name="check" />
          <div>
            <p>{checked.text}</p>
            <OtherServers key={checked.at} of={{ keyId: id }} />
          </div>
        </div>
      )}
      {enable.failed !== null && <Failure failed={enable.failed} />}
      <div class="panels">
        <WouldPass explained={explained} />
        <div class="column">
          <LastRefusals id={id} />
          <Details record={record} />
        </div>
        <Usage record={record} />
        <Rights record={record} />
        <Panel title="Meta" loaded={there(record)}>
          {({ meta }) =>
            meta === undefined ? (
              <p class="empty">No meta. Every verification returns what you store here.</p>
            ) : (
              <Snippet text={JSON.stringify(meta, null, 2)} />
            )
          }
        </Panel>
        <Audit id={id} count={count} />
      </div>
      {open === 'test' && <TestKey record={record} onClose={() => setOpen(null)} />}
      {open === 'edit' && <EditKey record={record} onClose={() => setOpen(null)} onChanged={changed} />}
      {open === 'rotate' && (
        <Rotate
          record={record}
          onClose={() => setOpen(null)}
          onDone={() => void check().catch(() => changed())}
        />
      )}
      {open === 'delete' && (
        <Delete
          record={record}
          isUsed={isRecent(lastUsed)}
          onClose={() => setOpen(null)}
          onDone={onDeleted}
        />
      )}
    </>
  )
}

/** What is there already, for a panel. */
const there = <T,>(data: T): Loaded<T> => ({ data, failed: null, at: 0, reload() {} })

/** Every check of a verification as it stands. Asking takes and counts nothing. */
function WouldPass({ explained }: { explained: Loaded<ExplainKeyReply> }) {
  return (
    <Panel
      title="Would it pass now?"
      loaded={explained}
      actions={
        <Button kind="quiet" icon="refresh" onClick={explained.reload}>
          Ask again
        </Button>
      }
    >
      {({ valid, code, checks }) => (
        <>
          <p class={`verdict ${valid ? 'ok' : 'bad'}`} role="status">
            <Icon name={valid ? 'check' : 'cross'} />
            {valid ? 'It would pass' : 'It would be refused'} <code>{code}</code>
            <span class="secondary">at {seconds(explained.at)}</span>
          </p>
          <Checks checks={checks} />
        </>
      )}
    </Panel>
  )
}

/** What this server remembers of the key's refusals: Live and Why of this key, in short. */
function LastRefusals({ id }: { id: string }) {
  const recent = useData(
    `refusals ${id}`,
    (options) => ask('events.listRecent', { keyId: id, limit: 5 }, options),
    { everyMs: 2_000 },
  )
  return (
    <Panel title="Last refusals" loaded={recent} actions={<a href={whyOf({ key: id })}>Why?</a>}>
      {({ events, since }) => (
        <div class="stack">
          {events.length === 0 ? (
            <p class="empty">
              None is remembered. This server remembers refusals since{' '}
              <span title={utc(since)}>{dayAndTime(since)}</span>, in memory only.
            </p>
          ) : (
            <EventTable events={events} label="Last refusals" isOfOne />
          )}
          <div>
            <WatchButton subject={{ keyId: id }} />
          </div>
        </div>
      )}
    </Panel>
  )
}

function Details({ record }: { record: KeyObject }) {
  const { refill, ratelimit } = record
  return (
    <Panel title="Details" loaded={there(record)}>
      {() => (
        <dl class="pairs">
          <dt>Id</dt>
          <dd class="copied">
            <code>{record.id}</code> <CopyButton text={record.id} />
          </dd>
          <dt>Created</dt>
          <dd title={utc(record.createdAt)}>{dayAndTime(record.createdAt)}</dd>
          <dt>Changed</dt>
          <dd>{record.updatedAt === undefined ? 'never' : dayAndTime(record.updatedAt)}</dd>
          <dt>Expires</dt>
          <dd>
            {record.expires === undefined
              ? 'never'
              : `${dayAndTime(record.expires)} (${fromNow(record.expires)})`}
          </dd>
          <dt>Rate limit</dt>
          <dd>{ratelimit === undefined ? 'none of its own' : limitText(ratelimit)}</dd>
          <dt>Credits</dt>
          <dd>
            {record.remaining === undefined ? 'not counted' : `${exact(record.remaining)} left`}
            {refill !== undefined &&
              `, +${exact(refill.amount)} ${refill.interval === 'daily' ? 'each day' : `on day ${refill.refillDay} of each month`}`}
          </dd>
          <dt>Environment</dt>
          <dd>{record.environment ?? 'none'}</dd>
        </dl>
      )}
    </Panel>
  )
}

const RANGES = [
  { value: '24h', name: 'Last 24 hours', hours: 24 },
  { value: '3d', name: 'Last 3 days', hours: 72 },
  { value: '7d', name: 'Last 7 days', hours: 168 },
] as const

function Usage({ record: { id, apiId } }: { record: KeyObject }) {
  const asked = place.value.query.get('range')
  const range = RANGES.find(({ value }) => value === asked) ?? RANGES[0]
  const loaded = useData(
    `usage ${id} ${range.value}`,
    ({ signal, isRefresh }) =>
      ask(
        'analytics.getVerifications',
        { apiId, keyId: [id], groupBy: ['hour'], start: Date.now() - (range.hours - 1) * 3_600_000 },
        { signal, isRefresh },
      ),
    { everyMs: 10_000 },
  )
  return (
    <Panel
      title="Usage by hour"
      loaded={loaded}
      isWide
      actions={
        <Choice
          label="Range"
          isLabelHidden
          value={range.value}
          options={RANGES}
          onChange={(value) => setQuery({ range: value === '24h' ? null : value })}
        />
      }
    >
      {(hours) =>
        hours.every(({ total }) => total === 0) ? (
          <p class="empty">
            The key was not verified in this time. Each verification counts within a second.
          </p>
        ) : (
          <Bars
            label="Verifications by hour"
            times={hours.map(({ time }) => time ?? 0)}
            series={OUTCOMES.map(({ field, name, series }) => ({
              name,
              className: series,
              values: hours.map((hour) => hour[field]),
            }))}
            file={`usage-${id}-${range.value}.csv`}
          />
        )
      }
    </Panel>
  )
}

function Rights({ record }: { record: KeyObject }) {
  return (
    <Panel title="Roles and permissions" loaded={there(record)}>
      {({ roles, permissions }) =>
        roles.length + permissions.length === 0 ? (
          <p class="empty">
            None. A verification that asks for a permission refuses the key, INSUFFICIENT_PERMISSIONS.
          </p>
        ) : (
          <dl class="pairs">
            <dt>Roles</dt>
            <dd>
              <Names names={roles} />
            </dd>
            <dt>Permissions</dt>
            <dd>
              <Names names={permissions} />
              {roles.length > 0 && <p class="secondary">Its own, and those of its roles.</p>}
            </dd>
          </dl>
        )
      }
    </Panel>
  )
}

function Names({ names }: { names: readonly string[] }) {
  if (names.length === 0) return <>none</>
  return (
    <ul class="tags">
      {names.slice(0, 100).map((each) => (
        <li key={each}>
          <code>{each}</code>
        </li>
      ))}
      {names.length > 100 && <li class="secondary">and {names.length - 100} more</li>}
    </ul>
  )
}

function Audit({ id, count }: { id: string; count: number }) {
  const loaded = useData(`audit ${id} ${count}`, async ({ signal }) => {
    const { events } = await ask(
      'audit.listEvents',
      { resourceId: id, limit: 100, order: 'newestFirst' },
      { signal },
    )
    return events
  })
  return (
    <Panel title="Audit" loaded={loaded} isWide>
      {(events) =>
        events.length === 0 ? (
          <p class="empty">Nothing is recorded of this key.</p>
        ) : (
          <ul class="rows">
            {events.map((event) => (
              <li key={event.id}>
                <span class="what">
                  <b>
                    <Breakable text={event.event} />
                  </b>
                  <span class="secondary">{changesOf(event, id)}</span>
                </span>
                <span class="number secondary" title={`${utc(event.time)}, root key ${event.actor.id}`}>
                  {dayAndTime(event.time)}
                </span>
              </li>
            ))}
          </ul>
        )
      }
    </Panel>
  )
}

/** `enabled: true → false`; else the event's sentence. */
function changesOf({ resources, description }: ListEventsReply['events'][number], id: string): string {
  const own = resources.find((each) => each.id === id)
  const { before, after } = own ?? {}
  if (before === undefined || after === undefined) return description
  return Object.keys(after)
    .map((field) => `${field}: ${shortJson(before[field])} → ${shortJson(after[field])}`)
    .join(', ')
}

function shortJson(value: unknown): string {
  const text = JSON.stringify(value) ?? 'null'
  return text.length > 60 ? `${text.slice(0, 59)}…` : text
}

const OVERLAPS = [
  { value: '0', name: 'at once' },
  { value: '3600000', name: 'in an hour' },
  { value: '86400000', name: 'in a day' },
  { value: '259200000', name: 'in 3 days' },
  { value: '604800000', name: 'in 7 days' },
] as const

/** A new text for the same key. Until the old one ends, both work and share credits and limits. */
function Rotate({ record, onClose, onDone }: { record: KeyObject; onClose: () => void; onDone: () => void }) {
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number]['value']>('86400000')
  const [made, setMade] = useState<{ keyId: string; key: string; oldKeyExpires: number } | null>(null)
  const input = { keyId: record.id, overlap: Number(overlap) }
  const { start, isBusy, failed } = useAction(async () => {
    setMade(await ask('keys.rerollKey', input))
    onDone()
  })
  if (made !== null)
    return (
      <SecretDialog
        title="The new key"
        secret={made.key}
        fileName="key.txt"
        about={
          <>
            {made.oldKeyExpires <= Date.now()
              ? 'The old key is refused from now on, EXPIRED.'
              : `The old key works until ${dayAndTime(made.oldKeyExpires)}.`}{' '}
            <a href={within(`keys/${made.keyId}`)}>Page of the new key</a>
          </>
        }
        onClose={onClose}
      />
    )
  return (
    <Dialog title={`Rotate ${nameOf(record)}`} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        <p>
          Makes a new key with everything that this one has: name, identity, rights, limits and credits. Until
          the old key ends, both work, and both count in the same limits and credits.
        </p>
        <Choice label="The old key ends" value={overlap} options={OVERLAPS} onChange={setOverlap} />
        {overlap === '0' && (
          <p class="notice warn">
            <Icon name="warning" />
            <span>Whoever still sends the old key is refused from then on. This cannot be undone.</span>
          </p>
        )}
        <CallText method="keys.rerollKey" input={input} />
        {failed !== null && <Failure failed={failed} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind={overlap === '0' ? 'danger' : 'main'} isBusy={isBusy}>
            {isBusy ? 'Rotating…' : 'Rotate key'}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

function Delete({
  record,
  isUsed,
  onClose,
  onDone,
}: {
  record: KeyObject
  isUsed: boolean
  onClose: () => void
  onDone: () => void
}) {
  const lately = useData(`lately ${record.id}`, async ({ signal }) => {
    if (lacking('api.*.read_api') !== null) return null
    const start = Date.now() - 3_600_000
    const points = await ask(
      'analytics.getVerifications',
      { apiId: record.apiId, keyId: [record.id], start },
      { signal },
    )
    return points.reduce((sum, { total }) => sum + total, 0)
  })
  return (
    <Confirm
      title={`Delete ${nameOf(record)}?`}
      button="Delete key"
      busy="Deleting…"
      typed={isUsed ? (record.name ?? record.start) : null}
      onClose={onClose}
      run={async () => {
        await ask('keys.deleteKey', { keyId: record.id })
        // Seen, not hoped: nothing finds it any more.
        await ask('keys.explainKey', { keyId: record.id }).catch((cause: unknown) => {
          if (!(cause instanceof CallFailed) || cause.code !== 'NOT_FOUND') throw cause
        })
        onDone()
      }}
    >
      <p>Whoever sends it is refused from then on, NOT_FOUND. This cannot be undone; Disable can.</p>
      {lately.data !== null && lately.data > 0 && (
        <p class="notice warn">
          <Icon name="warning" />
          <span>It was verified {exact(lately.data)} times in this and the last hour.</span>
        </p>
      )}
    </Confirm>
  )
}
