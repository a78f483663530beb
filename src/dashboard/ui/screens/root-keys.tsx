import { useState } from 'preact/hooks'
import type {
  CreateRootKeyReply,
  ListRootKeysReply,
  RerollRootKeyReply,
} from '../../../doors/v1/root-keys/schema.ts'
import { useData } from '../data.ts'
import { day, dayAndTime, exact, fromNow, utc } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { CallText } from '../parts/call.tsx'
import { Button, Field } from '../parts/controls.tsx'
import { Confirm, FormDialog, SecretDialog } from '../parts/dialog.tsx'
import { Area, Choice } from '../parts/form.tsx'
import { Icon } from '../parts/icons.tsx'
import { LastUsed } from '../parts/last-used.tsx'
import { Panel } from '../parts/panel.tsx'
import { OtherServers } from '../parts/servers.tsx'
import { Pager, Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { place } from '../route.ts'
import { ask, lacking, own, within, workspaceId } from '../session.ts'
import { Act } from './keys-that-hold.tsx'
import { callable, covers, GROUPS, TEMPLATES } from './rights.ts'

type Row = ListRootKeysReply['rootKeys'][number]

/** What applications and people call Tollgate with, and what each may do. */
export function RootKeys() {
  const heading = useTitle('Root keys')
  const [open, setOpen] = useState<
    { what: 'create' } | { what: 'edit' | 'delete' | 'rotate'; row: Row } | null
  >(null)
  const [made, setMade] = useState<{ title: string; rootKey: string } | null>(null)
  const [changed, setChanged] = useState<{ text: string; rootKeyId: string; count: number } | null>(null)
  const { query } = place.value
  const loaded = useData(`root keys ${workspaceId.value} ${query.get('after')}`, (options) =>
    ask('rootKeys.listRootKeys', { limit: 50, lastUsed: true, cursor: query.get('after') }, options),
  )
  const missing = lacking('root_key.*.create_root_key')
  useShortcuts({ c: () => missing === null && setOpen({ what: 'create' }) })
  const close = () => setOpen(null)
  const show = (title: string) => (reply: CreateRootKeyReply) => {
    setMade({ title, rootKey: reply.rootKey })
    loaded.reload()
  }
  const say = (text: string, { id }: Row) =>
    setChanged((before) => ({ text, rootKeyId: id, count: (before?.count ?? 0) + 1 }))
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setOpen({ what: 'create' })}>
          Create root key
        </Button>
      </div>
      <p class="secondary">
        Give each person and each application one of its own: the audit log then names them, and one can be
        revoked without the others.
      </p>
      {changed !== null && (
        <div class="notice" role="status">
          <Icon name="check" />
          <div>
            <p>{changed.text}</p>
            <OtherServers key={changed.count} of={{ rootKeyId: changed.rootKeyId }} saysOwn />
          </div>
        </div>
      )}
      <Panel title="All root keys" loaded={loaded}>
        {({ rootKeys, total, cursor }) => (
          <>
            <Table<Row>
              label="Root keys"
              file="root-keys.csv"
              hasActions
              rows={rootKeys}
              titleOf={nameOf}
              keyOf={({ id }) => id}
              pager={<Pager cursor={cursor}>{exact(total)} in all</Pager>}
              columns={[
                {
                  name: 'Name',
                  cell: ({ id, name, start }) => (
                    <>
                      <b>{name ?? <span class="secondary">unnamed</span>}</b>
                      {id === own.value?.rootKeyId && <span class="tag">you</span>}{' '}
                      <code class="secondary">{start}…</code>
                    </>
                  ),
                  text: nameOf,
                },
                {
                  name: 'May',
                  isMinor: true,
                  cell: ({ permissions }) => mayText(permissions),
                  text: ({ permissions }) => permissions.join(' '),
                },
                {
                  name: 'State',
                  cell: (row) => <span class="nowrap">{stateOf(row)}</span>,
                  text: ({ enabled, expires }) =>
                    enabled ? `enabled${expires === undefined ? '' : ` until ${utc(expires)}`}` : 'disabled',
                },
                {
                  name: 'Last used',
                  isMinor: true,
                  cell: ({ lastUsed }) => <LastUsed at={lastUsed} />,
                  text: ({ lastUsed }) => (lastUsed === undefined ? '' : utc(lastUsed)),
                },
                {
                  name: 'Created',
                  isMinor: true,
                  cell: ({ createdAt, id }) => (
                    <a class="nowrap" href={within(`audit?actor=${id}`)} title="What it changed">
                      {day(createdAt)}
                    </a>
                  ),
                  text: ({ createdAt }) => utc(createdAt),
                },
                {
                  name: 'Actions',
                  cell: (row) => (
                    <Actions
                      row={row}
                      onOpen={setOpen}
                      onDone={() => {
                        say(`${nameOf(row)} is ${row.enabled ? 'disabled' : 'enabled'}.`, row)
                        loaded.reload()
                      }}
                    />
                  ),
                },
              ]}
            />
          </>
        )}
      </Panel>
      {open?.what === 'create' && (
        <RootKeyForm
          row={null}
          onClose={close}
          onCreated={show('The new root key')}
          onChanged={loaded.reload}
        />
      )}
      {open?.what === 'edit' && (
        <RootKeyForm
          row={open.row}
          onClose={close}
          onCreated={show('The new root key')}
          onChanged={loaded.reload}
        />
      )}
      {open?.what === 'rotate' && (
        <Rotate
          row={open.row}
          onClose={close}
          onDone={(reply) => {
            const isEnded = reply.oldRootKeyExpires <= Date.now()
            if (isEnded) say(`${nameOf(open.row)} is rotated, and its old text has ended.`, open.row)
            show('The root key that replaces it')(reply)
          }}
        />
      )}
      {open?.what === 'delete' && (
        <Delete
          row={open.row}
          onClose={close}
          onDone={() => {
            say(`${nameOf(open.row)} is deleted.`, open.row)
            loaded.reload()
          }}
        />
      )}
      {made !== null && (
        <SecretDialog
          title={made.title}
          secret={made.rootKey}
          fileName="root-key.txt"
          about="Put it where its user keeps secrets, such as the environment of an application."
          onClose={() => setMade(null)}
        />
      )}
    </>
  )
}

const nameOf = ({ name, id }: Row) => name ?? id

function mayText(permissions: readonly string[]) {
  if (permissions.includes('*')) return 'everything'
  if (permissions.length === 0) return <span class="secondary">nothing</span>
  const [first, ...others] = permissions
  return (
    <span title={permissions.join('\n')}>
      <code>{first}</code>
      {others.length > 0 && ` and ${others.length} more`}
    </span>
  )
}

function stateOf({ enabled, expires }: Row) {
  if (!enabled) return 'Disabled'
  if (expires === undefined) return 'Active'
  if (expires <= Date.now()) return 'Expired'
  return <span title={dayAndTime(expires)}>Active, ends {fromNow(expires)}</span>
}

/** Why this root key may not change that one: to change another, hold all that it holds. */
function lackingFor(row: Row, permission: string): string | null {
  const held = own.value?.permissions ?? []
  const short = row.permissions.find((each) => !covers(held, each))
  return lacking(permission) ?? (short === undefined ? null : `needs ${short}, which it holds`)
}

function Actions({
  row,
  onOpen,
  onDone,
}: {
  row: Row
  onOpen: (open: { what: 'edit' | 'delete' | 'rotate'; row: Row }) => void
  onDone: () => void
}) {
  const updating = lackingFor(row, 'root_key.*.update_root_key')
  const isSelf = row.id === own.value?.rootKeyId
  return (
    <div class="row-actions">
      <Button kind="quiet" lacking={updating} onClick={() => onOpen({ what: 'edit', row })}>
        Edit
      </Button>
      <Act
        name={row.enabled ? 'Disable' : 'Enable'}
        lacking={updating ?? (isSelf ? 'you are signed in with it' : null)}
        run={() => ask('rootKeys.updateRootKey', { rootKeyId: row.id, enabled: !row.enabled })}
        onDone={onDone}
      />
      <Button
        kind="quiet"
        lacking={updating ?? lacking('root_key.*.create_root_key')}
        onClick={() => onOpen({ what: 'rotate', row })}
      >
        Rotate…
      </Button>
      <Button
        kind="quiet"
        lacking={
          lackingFor(row, 'root_key.*.delete_root_key') ?? (isSelf ? 'you are signed in with it' : null)
        }
        onClick={() => onOpen({ what: 'delete', row })}
      >
        Delete…
      </Button>
    </div>
  )
}

function Delete({ row, onClose, onDone }: { row: Row; onClose: () => void; onDone: () => void }) {
  const [isGrantedToo, setGrantedToo] = useState(false)
  return (
    <Confirm
      title="Delete this root key?"
      button="Delete root key"
      typed={nameOf(row)}
      run={async () => {
        await ask('rootKeys.deleteRootKey', { rootKeyId: row.id, granted: isGrantedToo })
        onDone()
      }}
      onClose={onClose}
    >
      <p>
        Whatever calls with {nameOf(row)} is refused from the next call on, and sessions that were opened with
        it end. It cannot be undone.
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked={isGrantedToo}
          onChange={(event) => setGrantedToo(event.currentTarget.checked)}
        />
        Also all root keys that it created
      </label>
    </Confirm>
  )
}

const OVERLAPS = [
  { value: '0', name: 'at once' },
  { value: '3600000', name: 'in 1 hour' },
  { value: '86400000', name: 'in 1 day' },
  { value: '604800000', name: 'in 7 days' },
] as const

function Rotate({
  row,
  onClose,
  onDone,
}: {
  row: Row
  onClose: () => void
  onDone: (reply: RerollRootKeyReply) => void
}) {
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number]['value']>('86400000')
  const input = { rootKeyId: row.id, overlap: Number(overlap) }
  return (
    <FormDialog
      title={`Rotate ${nameOf(row)}`}
      button="Rotate"
      run={async () => onDone(await ask('rootKeys.rerollRootKey', input))}
      onClose={onClose}
    >
      <p>A new root key with the same name and permissions is made and shown once.</p>
      <Choice label="The old one ends" value={overlap} options={OVERLAPS} onChange={setOverlap} />
      <CallText isFolded method="rootKeys.rerollRootKey" input={input} />
    </FormDialog>
  )
}

const ENDS = [
  { value: 'keep', name: 'as it is', days: null },
  { value: 'never', name: 'never', days: null },
  { value: '1', name: 'in 1 day', days: 1 },
  { value: '30', name: 'in 30 days', days: 30 },
  { value: '90', name: 'in 90 days', days: 90 },
  { value: '365', name: 'in 365 days', days: 365 },
] as const

type Scope = { resource: 'api' | 'ratelimit'; noun: string; things: readonly { id: string; name: string }[] }

/** Creates a root key, or edits one: boxes come from the server's table of needs. */
function RootKeyForm({
  row,
  onClose,
  onCreated,
  onChanged,
}: {
  row: Row | null
  onClose: () => void
  onCreated: (reply: CreateRootKeyReply) => void
  onChanged: () => void
}) {
  const [name, setName] = useState(row?.name ?? '')
  const [ends, setEnds] = useState<(typeof ENDS)[number]['value']>(row === null ? 'never' : 'keep')
  const [held] = useState(() => boxesOf(row?.permissions ?? []))
  const [chosen, setChosen] = useState(held.chosen)
  const [others, setOthers] = useState(held.others.join('\n'))
  const [single, setSingle] = useState(held.single)
  const [from] = useState(Date.now)
  const permissions = permissionsOf(chosen, others, single)
  const days = ENDS.find(({ value }) => value === ends)?.days ?? null
  const expires = days === null ? null : from + days * 86_400_000
  const trimmed = name.trim()
  const input =
    row === null
      ? { ...(trimmed !== '' && { name: trimmed }), permissions, ...(expires !== null && { expires }) }
      : {
          rootKeyId: row.id,
          ...(trimmed !== (row.name ?? '') && { name: trimmed === '' ? null : trimmed }),
          ...(isSame(permissions, row.permissions) ? {} : { permissions }),
          ...(ends !== 'keep' && { expires }),
        }
  const methods = callable(permissions)
  return (
    <FormDialog
      title={row === null ? 'Create root key' : `Edit ${nameOf(row)}`}
      button={row === null ? 'Create root key' : 'Save'}
      run={async () => {
        if (row === null) onCreated(await ask('rootKeys.createRootKey', input))
        else {
          await ask('rootKeys.updateRootKey', input)
          onChanged()
        }
      }}
      onClose={onClose}
    >
      <div class="line">
        <Field
          label="Name"
          value={name}
          onInput={setName}
          placeholder="checkout service"
          maxLength={256}
          required={row === null}
        />
        <Choice
          label="Expires"
          value={ends}
          options={ENDS.filter(({ value }) => value !== 'keep' || row !== null)}
          onChange={setEnds}
        />
      </div>
      <Templates onChoose={(next) => setChosen(new Set(next))} />
      <Boxes chosen={chosen} onChange={setChosen} single={single} onSingle={setSingle} />
      <Area
        label="Other permissions"
        hint="For single things, one a line: api.<id>.read_key"
        rows={2}
        value={others}
        onInput={setOthers}
      />
      {row !== null && <Difference before={row.permissions} after={permissions} />}
      <details class="by-api">
        <summary>
          May call {methods.length} {methods.length === 1 ? 'method' : 'methods'}
        </summary>
        <p class="methods">{methods.join(', ')}</p>
      </details>
      <CallText
        isFolded
        method={row === null ? 'rootKeys.createRootKey' : 'rootKeys.updateRootKey'}
        input={input}
      />
    </FormDialog>
  )
}

const BOXES = GROUPS.flatMap(({ boxes }) => boxes)
const isBox = (permission: string) => permission === '*' || BOXES.some((box) => box.permission === permission)

/** What the boxes, their things and the free lines say together, each once. */
function permissionsOf(
  chosen: ReadonlySet<string>,
  others: string,
  single: Record<string, readonly string[] | null>,
): string[] {
  const ofBoxes = [...chosen].flatMap((permission) => {
    const box = BOXES.find((each) => each.permission === permission)
    const ids = box?.isForSingle === true ? (single[box.resource] ?? null) : null
    return ids === null || box === undefined
      ? [permission]
      : ids.map((id) => `${box.resource}.${id}.${box.action}`)
  })
  const lines = others.split(/\s+/).filter((line) => line !== '')
  return [...new Set([...ofBoxes, ...lines])]
}

/**
 * Permissions as boxes: those for all things of a kind, and those for single things where each action is for the same ones.
 * What boxes cannot say stays as lines.
 */
function boxesOf(permissions: readonly string[]): {
  chosen: ReadonlySet<string>
  single: Record<string, readonly string[] | null>
  others: readonly string[]
} {
  const chosen = new Set(permissions.filter(isBox))
  const single: Record<string, readonly string[] | null> = {}
  const others = new Set(permissions.filter((each) => !isBox(each)))
  for (const resource of ['api', 'ratelimit']) {
    const own = BOXES.filter((box) => box.resource === resource && box.isForSingle)
    if (own.some(({ permission }) => chosen.has(permission))) continue
    const idsOf = (action: string) =>
      [...others]
        .filter((each) => each.startsWith(`${resource}.`) && each.endsWith(`.${action}`))
        .map((each) => each.slice(resource.length + 1, -action.length - 1))
        .toSorted()
    const actions = own.map(({ action }) => action).filter((action) => idsOf(action).length > 0)
    const ids = idsOf(actions[0] ?? '')
    if (actions.length === 0 || actions.some((action) => !isSame(idsOf(action), ids))) continue
    for (const action of actions) {
      chosen.add(`${resource}.*.${action}`)
      for (const id of ids) others.delete(`${resource}.${id}.${action}`)
    }
    single[resource] = ids
  }
  return { chosen, single, others: [...others] }
}

const isSame = (a: readonly string[], b: readonly string[]) =>
  a.length === b.length && a.every((each) => b.includes(each))

function Templates({ onChoose }: { onChoose: (permissions: readonly string[]) => void }) {
  const held = own.value?.permissions ?? []
  return (
    <fieldset class="templates">
      <legend>Begin with</legend>
      {TEMPLATES.map(({ name, permissions }) => {
        const short = permissions.find((each) => !covers(held, each))
        return (
          <Button
            key={name}
            lacking={short === undefined ? null : `needs ${short}`}
            onClick={() => onChoose(permissions)}
          >
            {name}
          </Button>
        )
      })}
    </fieldset>
  )
}

function Boxes({
  chosen,
  onChange,
  single,
  onSingle,
}: {
  chosen: ReadonlySet<string>
  onChange: (chosen: ReadonlySet<string>) => void
  single: Record<string, readonly string[] | null>
  onSingle: (single: Record<string, readonly string[] | null>) => void
}) {
  const held = own.value?.permissions ?? []
  const isAll = chosen.has('*')
  const scopes = useScopes()
  const toggle = (permission: string) => {
    const next = new Set(chosen)
    if (!next.delete(permission)) next.add(permission)
    onChange(next)
  }
  const box = (permission: string, label: string, reason: string | null) => (
    <label key={permission} class="check" title={reason ?? undefined}>
      <input
        type="checkbox"
        checked={chosen.has(permission)}
        disabled={reason !== null && !chosen.has(permission)}
        onChange={() => toggle(permission)}
      />
      <span>
        {label}
        {reason !== null && <span class="secondary"> {reason}</span>}
      </span>
    </label>
  )
  return (
    <div class="boxes">
      {box('*', 'Everything in this workspace (*)', covers(held, '*') ? null : 'needs *')}
      {!isAll &&
        GROUPS.map(({ resource, name, boxes }) => {
          const scope = scopes.find((each) => each.resource === resource)
          return (
            <fieldset key={resource}>
              <legend>{name}</legend>
              {scope !== undefined && (
                <ForWhich
                  scope={scope}
                  ids={single[resource] ?? null}
                  onChange={(ids) => onSingle({ ...single, [resource]: ids })}
                />
              )}
              <div class="columns">
                {boxes.map(({ permission, action, isForSingle }) =>
                  box(
                    permission,
                    `${action.replaceAll('_', ' ')}${!isForSingle && (single[resource] ?? null) !== null ? ' (in all)' : ''}`,
                    covers(held, permission) ? null : `needs ${permission}`,
                  ),
                )}
              </div>
            </fieldset>
          )
        })}
    </div>
  )
}

/** For all things of a kind, or for some. */
function ForWhich({
  scope: { resource, noun, things },
  ids,
  onChange,
}: {
  scope: Scope
  ids: readonly string[] | null
  onChange: (ids: readonly string[] | null) => void
}) {
  // Behind the first hundred, gone, or not for the eyes of this root key: shown by its id, so that it can be taken away.
  const unlisted = (ids ?? [])
    .filter((id) => !things.some((thing) => thing.id === id))
    .map((id) => ({ id, name: id }))
  return (
    <div class="for-which" role="radiogroup" aria-label={`For which ${noun}`}>
      <label class="check">
        <input type="radio" name={`for ${resource}`} checked={ids === null} onChange={() => onChange(null)} />
        For all {noun}
      </label>
      <label class="check">
        <input type="radio" name={`for ${resource}`} checked={ids !== null} onChange={() => onChange([])} />
        For these
      </label>
      {ids !== null && (
        <div class="columns">
          {[...things, ...unlisted].map(({ id, name }) => (
            <label key={id} class="check">
              <input
                type="checkbox"
                checked={ids.includes(id)}
                onChange={() => onChange(ids.includes(id) ? ids.filter((each) => each !== id) : [...ids, id])}
              />
              {name}
            </label>
          ))}
          {things.length + unlisted.length === 0 && (
            <p class="secondary">There are none, or your root key may not list them.</p>
          )}
        </div>
      )}
    </div>
  )
}

/** The things that a permission may name: the first hundred of each. */
function useScopes(): readonly Scope[] {
  const { data } = useData<readonly Scope[]>(`things ${workspaceId.value}`, async (options) => {
    const [apis, namespaces] = await Promise.all([
      lacking('api.*.read_api') === null ? ask('apis.listApis', { limit: 100 }, options) : null,
      lacking('ratelimit.*.read_namespace') === null
        ? ask('ratelimits.listNamespaces', { limit: 100 }, options)
        : null,
    ])
    return [
      { resource: 'api', noun: 'APIs', things: apis?.apis ?? [] },
      { resource: 'ratelimit', noun: 'namespaces', things: namespaces?.namespaces ?? [] },
    ]
  })
  return data ?? []
}

/** What saving adds and takes away. */
function Difference({ before, after }: { before: readonly string[]; after: readonly string[] }) {
  const added = after.filter((each) => !before.includes(each))
  const removed = before.filter((each) => !after.includes(each))
  if (added.length + removed.length === 0) return <p class="secondary">Its permissions stay as they are.</p>
  return (
    <ul class="difference">
      {added.map((each) => (
        <li key={each} class="added">
          added <code>{each}</code>
        </li>
      ))}
      {removed.map((each) => (
        <li key={each} class="removed">
          removed <code>{each}</code>
        </li>
      ))}
    </ul>
  )
}
