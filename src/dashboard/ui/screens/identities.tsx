import { useState } from 'preact/hooks'
import type {
  GetIdentityReply,
  IdentityReply,
  ListIdentitiesReply,
} from '../../../doors/v1/identities/schema.ts'
import { useData } from '../data.ts'
import { counted, exact, utc } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { CallText } from '../parts/call.tsx'
import { Button, CopyButton, Field } from '../parts/controls.tsx'
import { Confirm, FormDialog } from '../parts/dialog.tsx'
import { Area, QueryField, readObject } from '../parts/form.tsx'
import { left, span, Used, useNow } from '../parts/limits.tsx'
import { Missing } from '../parts/missing.tsx'
import { Panel } from '../parts/panel.tsx'
import { Pager, Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { go, place } from '../route.ts'
import { ask, holds, lacking, within, workspaceId } from '../session.ts'
import { AuditOf } from './audit.tsx'
import { KeysThatHold } from './keys-that-hold.tsx'

type Row = ListIdentitiesReply['identities'][number]

/** The users and organisations that keys belong to. */
export function Identities() {
  const heading = useTitle('Identities')
  const [isMaking, setMaking] = useState(false)
  const { query } = place.value
  const search = query.get('search') ?? ''
  const loaded = useData(`identities ${workspaceId.value} ${search} ${query.get('after')}`, (options) =>
    ask('identities.listIdentities', { search, limit: 50, cursor: query.get('after') }, options),
  )
  const missing = lacking('identity.*.create_identity')
  useShortcuts({ c: () => missing === null && setMaking(true) })
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setMaking(true)}>
          Create identity
        </Button>
      </div>
      <div class="filters">
        <QueryField name="search" label="Begins with" placeholder="user_123" />
      </div>
      <Panel title="All identities" loaded={loaded}>
        {({ identities, total, cursor }) => (
          <>
            {identities.length === 0 ? (
              <>
                <p class="empty">
                  {search === ''
                    ? 'There is no identity yet. A key with an external id creates its own.'
                    : `No external id begins with “${search}”. Upper and lower case differ.`}
                </p>
                <Pager cursor={cursor} />
              </>
            ) : (
              <Table<Row>
                label="Identities"
                file="identities.csv"
                pager={
                  <Pager cursor={cursor}>
                    {exact(total)}
                    {search !== '' && total === 1000 ? ' or more' : ''} in all
                  </Pager>
                }
                rows={identities}
                titleOf={({ externalId }) => externalId}
                keyOf={({ id }) => id}
                columns={[
                  {
                    name: 'External id',
                    cell: ({ id, externalId }) => <a href={within(`identities/${id}`)}>{externalId}</a>,
                    text: ({ externalId }) => externalId,
                  },
                  {
                    name: 'Shared limits',
                    cell: ({ ratelimits }) => limitsText(ratelimits),
                    text: ({ ratelimits }) => ratelimits.map(limitText).join(', '),
                  },
                  { name: 'Id', isMinor: true, cell: ({ id }) => <code>{id}</code>, text: ({ id }) => id },
                ]}
              />
            )}
          </>
        )}
      </Panel>
      {isMaking && (
        <IdentityForm
          identity={null}
          onClose={() => setMaking(false)}
          onDone={(id) => go(within(`identities/${id}`))}
        />
      )}
    </>
  )
}

const limitText = ({ name, limit, duration }: Row['ratelimits'][number]) =>
  `${name} ${exact(limit)}/${durationText(duration)}`

const limitsText = (limits: Row['ratelimits']) =>
  limits.length === 0 ? <span class="secondary">none</span> : limits.map(limitText).join(', ')

const UNITS = [
  { ms: 86_400_000, name: 'd' },
  { ms: 3_600_000, name: 'h' },
  { ms: 60_000, name: 'min' },
  { ms: 1000, name: 's' },
]

/** `1 min`, `90 s`, `1500 ms`. */
function durationText(ms: number): string {
  const unit = UNITS.find((each) => ms % each.ms === 0) ?? { ms: 1, name: 'ms' }
  return `${ms === unit.ms ? '' : `${ms / unit.ms}\u00a0`}${unit.name}`
}

/** One identity: what its keys share, and all of them. */
export function Identity({ id }: { id: string }) {
  const loaded = useData(`identity ${workspaceId.value} ${id}`, (options) =>
    ask('identities.getIdentity', { identityId: id }, options),
  )
  // The counters change with every call; what people edit must not move under them.
  const counters = useData(
    `counters ${workspaceId.value} ${id} ${loaded.at}`,
    (options) => ask('identities.getIdentity', { identityId: id, counters: true }, options),
    { everyMs: 2_000 },
  )
  const [open, setOpen] = useState<'edit' | 'delete' | null>(null)
  const { data } = loaded
  const heading = useTitle(data?.externalId ?? 'Identity')
  const onOne = (action: string) =>
    holds(`identity.*.${action}`, `identity.${id}.${action}`) ? null : `needs identity.*.${action}`
  if (data === null && loaded.failed?.code === 'NOT_FOUND')
    return (
      <>
        <div class="head">{heading}</div>
        <Missing kind="identity" id={id}>
          <a href={within('identities')}>All identities</a>
        </Missing>
        <AuditOf resourceId={id} />
      </>
    )
  return (
    <>
      <p class="crumbs">
        <a href={within('identities')}>Identities</a>
      </p>
      <div class="head">
        {heading}
        {data !== null && (
          <>
            <Button
              icon="edit"
              lacking={lacking('identity.*.update_identity')}
              onClick={() => setOpen('edit')}
            >
              Edit
            </Button>
            <Button
              kind="danger"
              icon="trash"
              lacking={onOne('delete_identity')}
              onClick={() => setOpen('delete')}
            >
              Delete…
            </Button>
          </>
        )}
      </div>
      <div class="panels">
        <Panel title="Shared limits now" loaded={counters}>
          {({ ratelimits }) =>
            ratelimits.length === 0 ? (
              <p class="empty">Its keys share no limit.</p>
            ) : (
              <SharedLimits limits={ratelimits} />
            )
          }
        </Panel>
        <Panel title="Id and meta" loaded={loaded}>
          {({ meta, id: identityId }) => (
            <>
              <dl class="pairs">
                <dt>Id</dt>
                <dd class="copied">
                  <code>{identityId}</code> <CopyButton text={identityId} />
                </dd>
              </dl>
              {Object.keys(meta).length === 0 ? (
                <p class="empty">It has no meta.</p>
              ) : (
                // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it
                <pre class="json" tabIndex={0}>
                  {JSON.stringify(meta, null, 2)}
                </pre>
              )}
            </>
          )}
        </Panel>
        <KeysThatHold title="Keys in all APIs" held={{ identityId: id }} empty="No key belongs to it." />
        <AuditOf resourceId={id} />
      </div>
      {open === 'edit' && data !== null && (
        <IdentityForm identity={data} onClose={() => setOpen(null)} onDone={loaded.reload} />
      )}
      {open === 'delete' && data !== null && <DeleteIdentity identity={data} onClose={() => setOpen(null)} />}
    </>
  )
}

/** How far each limit is used up by all keys together. */
function SharedLimits({ limits }: { limits: GetIdentityReply['ratelimits'] }) {
  const now = useNow()
  return (
    <ul class="rows near">
      {limits.map(({ name, limit, duration, remaining = limit, reset = 0 }) => (
        <li key={name}>
          <span class="what">
            <b>{name}</b>
            <span class="secondary">per {span(duration)}</span>
          </span>
          <Used used={limit - remaining} limit={limit} />
          <span
            class="number secondary"
            title={remaining === limit ? undefined : `opens again ${utc(reset)}`}
          >
            {remaining === limit ? 'not in use' : left(reset, now)}
          </span>
        </li>
      ))}
    </ul>
  )
}

function DeleteIdentity({ identity, onClose }: { identity: IdentityReply; onClose: () => void }) {
  const { data } = useData(`count of keys ${identity.id}`, async (options) =>
    holds('api.*.read_key')
      ? await ask('keys.listKeys', { identityId: identity.id, limit: 1 }, options)
      : null,
  )
  const keys = data?.total ?? null
  return (
    <Confirm
      title="Delete this identity?"
      button="Delete identity"
      typed={keys === 0 ? null : identity.externalId}
      run={async () => {
        await ask('identities.deleteIdentity', { identityId: identity.id })
        go(within('identities'))
      }}
      onClose={onClose}
    >
      <p>
        {keys === null ? 'Its keys' : `Its ${counted(keys, 'key')}`} stay valid, and belong to nobody. Its
        shared limits and its meta are gone.
      </p>
    </Confirm>
  )
}

type LimitDraft = { name: string; limit: string; seconds: string }

/** Creates or edits an identity. */
function IdentityForm({
  identity,
  onClose,
  onDone,
}: {
  identity: IdentityReply | null
  onClose: () => void
  onDone: (id: string) => void
}) {
  const [externalId, setExternalId] = useState(identity?.externalId ?? '')
  const [meta, setMeta] = useState(
    identity === null || Object.keys(identity.meta).length === 0
      ? ''
      : JSON.stringify(identity.meta, null, 2),
  )
  const [limits, setLimits] = useState<LimitDraft[]>(
    (identity?.ratelimits ?? []).map(({ name, limit, duration }) => ({
      name,
      limit: String(limit),
      seconds: String(duration / 1000),
    })),
  )
  const read = readObject(meta)
  const input = {
    ...(identity === null ? { externalId: externalId.trim() } : { identityId: identity.id }),
    ...('value' in read && (identity !== null || meta.trim() !== '') ? { meta: read.value } : {}),
    ...(identity !== null || limits.length > 0
      ? {
          ratelimits: limits.map(({ name, limit, seconds }) => ({
            name: name.trim(),
            limit: Number(limit),
            duration: Math.round(Number(seconds) * 1000),
          })),
        }
      : {}),
  }
  const set = (index: number, change: Partial<LimitDraft>) =>
    setLimits(limits.map((each, at) => (at === index ? { ...each, ...change } : each)))
  const method = identity === null ? 'identities.createIdentity' : 'identities.updateIdentity'
  return (
    <FormDialog
      title={identity === null ? 'Create identity' : `Edit ${identity.externalId}`}
      button={identity === null ? 'Create' : 'Save'}
      lacking={'error' in read ? 'the meta is no JSON object' : null}
      run={async () => {
        if (identity === null) onDone((await ask('identities.createIdentity', input)).identityId)
        else onDone((await ask('identities.updateIdentity', input)).id)
      }}
      onClose={onClose}
    >
      {identity === null && (
        <Field
          label="External id"
          hint="Your own id of the user or organisation. It cannot be changed later."
          value={externalId}
          onInput={setExternalId}
          required
          maxLength={256}
        />
      )}
      <fieldset class="limits">
        <legend>Limits that its keys share</legend>
        {limits.map((each, index) => (
          <div class="line" key={index}>
            <Field label="Name" value={each.name} onInput={(name) => set(index, { name })} required />
            <Field label="Limit" value={each.limit} onInput={(limit) => set(index, { limit })} required />
            <Field
              label="Seconds"
              value={each.seconds}
              onInput={(seconds) => set(index, { seconds })}
              required
            />
            <Button
              kind="quiet"
              icon="cross"
              onClick={() => setLimits(limits.filter((_, at) => at !== index))}
            >
              Remove
            </Button>
          </div>
        ))}
        <Button
          icon="plus"
          onClick={() => setLimits([...limits, { name: 'requests', limit: '100', seconds: '60' }])}
        >
          Add limit
        </Button>
      </fieldset>
      <Area
        label="Meta"
        hint="A JSON object that every verification of its keys returns."
        error={'error' in read ? read.error : null}
        value={meta}
        onInput={setMeta}
      />
      <CallText isFolded method={method} input={input} />
    </FormDialog>
  )
}
