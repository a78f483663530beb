import { useEffect, useRef, useState } from 'preact/hooks'
import type { KeyObject, SearchKeysReply } from '../../../doors/v1/keys/schema.ts'
import { CallFailed } from '../api.ts'
import { useData } from '../data.ts'
import { counted, exact, utc } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { CardHead, CardRow } from '../parts/card.tsx'
import { Button, Field, useAction } from '../parts/controls.tsx'
import { Confirm, FormDialog } from '../parts/dialog.tsx'
import { Choice } from '../parts/form.tsx'
import { isRecent, LastUsed } from '../parts/last-used.tsx'
import { Panel } from '../parts/panel.tsx'
import { CsvButton } from '../parts/save-csv.tsx'
import { useTitle } from '../parts/title.tsx'
import { toast } from '../parts/toast.tsx'
import { go, place, setQuery } from '../route.ts'
import { ask, holdsOnAny, within, workspaceId } from '../session.ts'
import { CreateKey } from './key-form.tsx'
import { chipsOf, limitText, nameOf } from './key-state.ts'

const STATES = [
  { value: '', name: 'Any state' },
  { value: 'active', name: 'Active' },
  { value: 'disabled', name: 'Disabled' },
  { value: 'expired', name: 'Expired' },
  { value: 'expiresSoon', name: 'Expires within 7 days' },
  { value: 'lowCredits', name: '10 credits or fewer' },
] as const

const USES = [
  { value: '', name: 'At any time or never' },
  { value: 'lastHour', name: 'In the last hour' },
  { value: 'last24Hours', name: 'In the last 24 hours' },
  { value: 'last7Days', name: 'In the last 7 days' },
  { value: 'last30Days', name: 'In the last 30 days' },
  { value: 'never', name: 'Never' },
] as const

const PAGE = 50

/** Keys of all APIs or of one, newest first. Filters and page are in the address. */
export function Keys() {
  const heading = useTitle('Keys')
  const { query } = place.value
  const apiId = query.get('api') ?? ''
  const state = STATES.find(({ value }) => value === query.get('state'))?.value ?? ''
  const used = USES.find(({ value }) => value === query.get('used'))?.value ?? ''
  const search = query.get('search') ?? ''
  const cursor = query.get('cursor') ?? ''
  const workspace = workspaceId.value
  const apis = useData(`apis ${workspace}`, ({ signal }) => ask('apis.listApis', { limit: 100 }, { signal }))
  const found = useData(`keys ${workspace} ${apiId} ${state} ${used} ${search} ${cursor}`, ({ signal }) =>
    ask(
      'keys.searchKeys',
      {
        limit: PAGE,
        ...(apiId !== '' && { apiId }),
        ...(state !== '' && { state }),
        ...(used !== '' && { used }),
        ...(search !== '' && { search }),
        ...(cursor !== '' && { cursor }),
      },
      { signal },
    ),
  )
  const [isCreating, setCreating] = useState(query.get('create') !== null)
  const lacksCreate = holdsOnAny('create_key') ? null : 'needs api.*.create_key'
  useShortcuts({ c: () => lacksCreate === null && setCreating(true) })
  const isFiltered = apiId !== '' || state !== '' || used !== '' || search !== ''
  const names = new Map(apis.data?.apis.map(({ id, name }) => [id, name]))
  const apiChoices = [
    { value: '', name: 'All APIs' },
    ...(apis.data?.apis ?? []).map(({ id, name }) => ({ value: id, name })),
    ...(apiId !== '' && !names.has(apiId) ? [{ value: apiId, name: apiId }] : []),
  ]
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={lacksCreate} onClick={() => setCreating(true)}>
          Create key
        </Button>
      </div>
      <div class="key-filters">
        <Choice
          label="API"
          value={apiId}
          options={apiChoices}
          onChange={(api) => setQuery({ api, cursor: null })}
        />
        <Choice
          label="State"
          value={state}
          options={STATES}
          onChange={(chosen) => setQuery({ state: chosen, cursor: null })}
        />
        <Choice
          label="Used"
          value={used}
          options={USES}
          onChange={(chosen) => setQuery({ used: chosen, cursor: null })}
        />
        <SearchText key={search} text={search} />
        {isFiltered && (
          <Button
            kind="quiet"
            icon="cross"
            onClick={() => setQuery({ api: null, state: null, used: null, search: null, cursor: null })}
          >
            Clear
          </Button>
        )}
      </div>
      <Panel title={titleOf(found.data, isFiltered)} loaded={found} isWide>
        {(data) =>
          data.keys.length === 0 && data.cursor === undefined ? (
            <Empty isFiltered={isFiltered} onCreate={() => setCreating(true)} lacksCreate={lacksCreate} />
          ) : (
            <Found
              key={`${workspace} ${query}`}
              data={data}
              names={names}
              cursor={cursor}
              onChange={found.reload}
            />
          )
        }
      </Panel>
      {/* Not before it is known which APIs there are: the form begins with the first. */}
      {isCreating && (apis.data !== null || apis.failed !== null) && (
        <CreateKey
          apis={apis.data?.apis ?? []}
          apiId={apiId}
          onClose={() => {
            setCreating(false)
            if (query.get('create') !== null) setQuery({ create: null })
          }}
          onMade={found.reload}
        />
      )}
    </>
  )
}

function titleOf(data: SearchKeysReply | null, isFiltered: boolean): string {
  if (data === null) return isFiltered ? 'Keys found' : 'All keys'
  if (!data.isTotalExact) return `More than ${exact(data.total)} keys`
  return counted(data.total, 'key')
}

/** Searches when it has not changed for a moment. */
function SearchText({ text }: { text: string }) {
  const [typed, setTyped] = useState(text)
  const waiting = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  useEffect(() => () => clearTimeout(waiting.current), [])
  return (
    <div class="grows">
      <Field
        label="Begins with"
        placeholder="name, prefix, id or external id"
        value={typed}
        maxLength={256}
        onInput={(value) => {
          setTyped(value)
          clearTimeout(waiting.current)
          waiting.current = setTimeout(() => setQuery({ search: value.trim(), cursor: null }), 300)
        }}
      />
    </div>
  )
}

function Empty({
  isFiltered,
  onCreate,
  lacksCreate,
}: {
  isFiltered: boolean
  onCreate: () => void
  lacksCreate: string | null
}) {
  if (isFiltered) return <p class="empty">No key meets these filters.</p>
  return (
    <div class="empty stack">
      <p>There are no keys yet. A key is what a user of yours sends with each request.</p>
      <p>
        <Button kind="main" icon="plus" lacking={lacksCreate} onClick={onCreate}>
          Create the first key
        </Button>
      </p>
    </div>
  )
}

type Bulk = { done: string; run: (key: KeyObject) => Promise<unknown> }

/** One page of keys. What is chosen is what is shown: never "all that the filter finds". */
function Found({
  data,
  names,
  cursor,
  onChange,
}: {
  data: SearchKeysReply
  names: ReadonlyMap<string, string>
  cursor: string
  onChange: () => void
}) {
  const { keys } = data
  const ids = keys.map(({ id }) => id)
  const used = useData(`used ${ids.join(' ')}`, async ({ signal }) =>
    ids.length === 0 ? { keys: [] } : await ask('keys.getLastUsed', { keyId: ids }, { signal }),
  )
  const usedAt = new Map(used.data?.keys.map(({ keyId, lastUsed }) => [keyId, lastUsed]))
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const [failures, setFailures] = useState<ReadonlyMap<string, CallFailed>>(new Map())
  const [dialog, setDialog] = useState<'identity' | 'delete' | null>(null)
  const last = useRef<string | null>(null)
  const body = useRef<HTMLTableSectionElement>(null)
  const selected = keys.filter(({ id }) => chosen.has(id))

  const choose = (id: string, isChosen: boolean, isRange: boolean) => {
    const [from, to] = [ids.indexOf(last.current ?? id), ids.indexOf(id)]
    const range = isRange && from >= 0 ? ids.slice(Math.min(from, to), Math.max(from, to) + 1) : [id]
    const next = new Set(chosen)
    for (const each of range)
      if (isChosen) next.add(each)
      else next.delete(each)
    last.current = id
    setChosen(next)
  }

  /** One call a key. What failed stays chosen, with its reason at the row. */
  const runAll = async ({ done, run }: Bulk, undo?: (key: KeyObject) => Promise<unknown>): Promise<void> => {
    const failed = new Map<string, CallFailed>()
    const succeeded: KeyObject[] = []
    for (const key of selected)
      try {
        await run(key)
        succeeded.push(key)
      } catch (cause) {
        if (!(cause instanceof CallFailed)) throw cause
        failed.set(key.id, cause)
      }
    setFailures(failed)
    setChosen(new Set(failed.keys()))
    const said = `${done} ${counted(succeeded.length, 'key')}${failed.size > 0 ? `; ${failed.size} failed` : ''}.`
    toast(
      said,
      undo === undefined || succeeded.length === 0
        ? undefined
        : async () => {
            for (const key of succeeded) await undo(key)
            onChange()
          },
    )
    onChange()
  }
  const enable = (enabled: boolean) => (key: KeyObject) => ask('keys.updateKey', { keyId: key.id, enabled })
  const switching = useAction(async (enabled: boolean) => {
    const changed = selected.filter((key) => key.enabled !== enabled)
    const before = new Set(changed.map(({ id }) => id))
    await runAll(
      { done: enabled ? 'Enabled' : 'Disabled', run: enable(enabled) },
      async (key) => before.has(key.id) && (await enable(!enabled)(key)),
    )
  })

  const rowsOf = () => [...(body.current?.querySelectorAll<HTMLAnchorElement>('th a') ?? [])]
  const step = (by: 1 | -1) => {
    const rows = rowsOf()
    const at = rows.findIndex((row) => row.closest('tr')?.contains(document.activeElement))
    rows[
      at === -1 ? (by === 1 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))
    ]?.focus()
  }
  useShortcuts({
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const id = document.activeElement?.closest('tr')?.dataset.id
      if (id !== undefined) choose(id, !chosen.has(id), false)
    },
  })
  const lacksUpdate = holdsOnAny('update_key') ? null : 'needs api.*.update_key'
  const lacksDelete = holdsOnAny('delete_key') ? null : 'needs api.*.delete_key'
  const isAll = ids.length > 0 && selected.length === ids.length
  return (
    <>
      <div class="scrolling plain">
        <table class="list">
          <thead>
            <tr>
              <th scope="col" class="choose">
                <label class="tick">
                  <input
                    type="checkbox"
                    checked={isAll}
                    onChange={(event) => setChosen(new Set(event.currentTarget.checked ? ids : []))}
                  />
                  <span class="visually-hidden">Choose all shown</span>
                </label>
              </th>
              <th scope="col">Name</th>
              <th scope="col" class="wide-only">
                API
              </th>
              <th scope="col" class="wide-only">
                Identity
              </th>
              <th scope="col" class="number wide-only">
                Credits
              </th>
              <th scope="col" class="wide-only">
                Limit
              </th>
              <th scope="col">Last used</th>
              <CardHead />
            </tr>
          </thead>
          <tbody ref={body}>
            {keys.map((key) => (
              <CardRow
                key={key.id}
                id={key.id}
                class={chosen.has(key.id) ? 'chosen' : ''}
                name={nameOf(key)}
                columns={7}
                facts={factsOf(key, names)}
              >
                <td class="choose">
                  <label class="tick">
                    <input
                      type="checkbox"
                      checked={chosen.has(key.id)}
                      onClick={(event) => choose(key.id, event.currentTarget.checked, event.shiftKey)}
                    />
                    <span class="visually-hidden">Choose {nameOf(key)}</span>
                  </label>
                </td>
                <th scope="row">
                  <a href={within(`keys/${key.id}`)}>{nameOf(key)}</a>
                  {chipsOf(key).map(({ kind, text }) => (
                    <span key={text} class={`chip small ${kind}`}>
                      {text}
                    </span>
                  ))}
                  {key.name !== undefined && key.name !== '' && <code class="start">{key.start}…</code>}
                  {failures.has(key.id) && <p class="hint bad">{failures.get(key.id)?.message}</p>}
                </th>
                {factsOf(key, names).map(({ name, value }) => (
                  <td key={name} class={CLASSES[name]}>
                    {value}
                  </td>
                ))}
                <td>{used.data === null ? '' : <LastUsed at={usedAt.get(key.id)} />}</td>
              </CardRow>
            ))}
          </tbody>
        </table>
      </div>
      {keys.length === 0 && <p class="empty">None on this page: go on to older keys.</p>}
      <div class="under">
        {selected.length === 0 ? (
          <p class="secondary">Choose keys to change them together.</p>
        ) : (
          <section class="bulk" aria-label="Chosen keys">
            <p role="status">
              <b>{selected.length} chosen</b>
            </p>
            <Button
              icon="off"
              lacking={lacksUpdate}
              isBusy={switching.isBusy}
              onClick={() => void switching.start(false)}
            >
              Disable
            </Button>
            <Button
              icon="check"
              lacking={lacksUpdate}
              isBusy={switching.isBusy}
              onClick={() => void switching.start(true)}
            >
              Enable
            </Button>
            <Button lacking={lacksUpdate} onClick={() => setDialog('identity')}>
              Set identity…
            </Button>
            <Button kind="danger" icon="trash" lacking={lacksDelete} onClick={() => setDialog('delete')}>
              Delete…
            </Button>
          </section>
        )}
        <CsvButton file="keys.csv" rows={csvOf(selected.length === 0 ? keys : selected, usedAt)} />
        <nav class="pages" aria-label="Pages">
          {cursor !== '' && (
            <Button onClick={() => setQuery({ cursor: null }, { replaces: false })}>Newest</Button>
          )}
          {data.cursor !== undefined && (
            <Button
              onClick={() => {
                setQuery({ cursor: data.cursor ?? null }, { replaces: false })
                scrollTo(0, 0)
              }}
            >
              Next
            </Button>
          )}
        </nav>
      </div>
      {dialog === 'identity' && (
        <SetIdentity
          count={selected.length}
          onClose={() => setDialog(null)}
          run={async (externalId) => {
            await runAll({
              done: externalId === null ? 'Disconnected' : `Connected to ${externalId}:`,
              run: (key) => ask('keys.updateKey', { keyId: key.id, externalId }),
            })
            setDialog(null)
          }}
        />
      )}
      {dialog === 'delete' && (
        <Confirm
          title={`Delete ${counted(selected.length, 'key')}?`}
          button={`Delete ${counted(selected.length, 'key')}`}
          busy="Deleting…"
          typed={selected.some(({ id }) => isRecent(usedAt.get(id))) ? `delete ${selected.length}` : null}
          onClose={() => setDialog(null)}
          run={async () => {
            await runAll({
              done: 'Deleted',
              run: (key) => ask('keys.deleteKey', { keyId: key.id }),
            })
            setDialog(null)
          }}
        >
          <p>Whoever sends one of these keys is refused from then on. This cannot be undone.</p>
          <ul class="names">
            {selected.slice(0, 8).map((key) => (
              <li key={key.id}>
                {nameOf(key)} {isRecent(usedAt.get(key.id)) && <span class="chip small warn">in use</span>}
              </li>
            ))}
            {selected.length > 8 && <li class="secondary">and {selected.length - 8} more</li>}
          </ul>
        </Confirm>
      )}
    </>
  )
}

/** Columns between the name and the last use; on a phone they are in a card. */
const factsOf = (key: KeyObject, names: ReadonlyMap<string, string>) =>
  [
    { name: 'API', value: names.get(key.apiId) ?? key.apiId },
    { name: 'Identity', value: key.identity?.externalId ?? <None /> },
    {
      name: 'Credits',
      value: key.remaining === undefined ? <None words="not counted" /> : exact(key.remaining),
    },
    {
      name: 'Limit',
      value: key.ratelimit === undefined ? <None words="no limit" /> : limitText(key.ratelimit),
    },
  ] as const
const CLASSES = {
  API: 'wide-only cut',
  Identity: 'wide-only cut',
  Credits: 'number wide-only',
  Limit: 'wide-only',
} as const

const None = ({ words = 'none' }: { words?: string }) => (
  <span class="none">
    <span aria-hidden="true">–</span>
    <span class="visually-hidden">{words}</span>
  </span>
)

function SetIdentity({
  count,
  run,
  onClose,
}: {
  count: number
  run: (externalId: string | null) => Promise<void>
  onClose: () => void
}) {
  const [externalId, setExternalId] = useState('')
  const given = externalId.trim()
  return (
    <FormDialog
      title={`Identity of ${counted(count, 'key')}`}
      button={given === '' ? 'Disconnect' : 'Set identity'}
      run={() => run(given === '' ? null : given)}
      onClose={onClose}
    >
      <Field
        label="External id"
        value={externalId}
        onInput={setExternalId}
        maxLength={256}
        hint="Your id of the user or organisation. It is created if it does not exist. Empty disconnects the keys."
      />
    </FormDialog>
  )
}

const csvOf = (keys: readonly KeyObject[], usedAt: ReadonlyMap<string, number | undefined>): string[][] => [
  [
    'id',
    'start',
    'name',
    'api',
    'external id',
    'enabled',
    'expires',
    'credits',
    'limit',
    'duration ms',
    'created',
    'last used',
  ],
  ...keys.map((key) => [
    key.id,
    key.start,
    key.name ?? '',
    key.apiId,
    key.identity?.externalId ?? '',
    String(key.enabled),
    key.expires === undefined ? '' : utc(key.expires),
    key.remaining === undefined ? '' : String(key.remaining),
    key.ratelimit === undefined ? '' : String(key.ratelimit.limit),
    key.ratelimit === undefined ? '' : String(key.ratelimit.duration),
    utc(key.createdAt),
    timeOf(usedAt.get(key.id)),
  ]),
]

const timeOf = (at: number | undefined) => (at === undefined ? '' : utc(at))

/** Opens a key by its address. */
export const openKey = (id: string) => go(within(`keys/${id}`))
