import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Liveness } from './api.ts'
import { type Loaded, useData } from './data.ts'
import { clock, dayAndTime } from './format.ts'
import { shortcutsOn, useShortcuts } from './keyboard.ts'
import { Button } from './parts/controls.tsx'
import { Dialog } from './parts/dialog.tsx'
import { Icon, type IconName } from './parts/icons.tsx'
import { Search } from './parts/search.tsx'
import { Toasts } from './parts/toast.tsx'
import { go, place } from './route.ts'
import { ask, holds, holdsOnAny, own, session, signOut, within, workspaceId } from './session.ts'
import { setTheme, THEMES, theme } from './theme.ts'

type Section = {
  path: string
  name: string
  icon: IconName
  letter: string
  /** Rights of which one shows something there; absent = any root key sees something. */
  reads?: readonly string[]
  /** As `reads`, of a right that may be held on one API alone. */
  readsOnApi?: string
  /** Another path that belongs to it. */
  also?: string
  isForOperator?: boolean
}

/** Screens in the rail, each with the letter that follows `g`. */
export const SECTIONS: readonly Section[] = [
  { path: 'overview', name: 'Overview', icon: 'overview', letter: 'o' },
  { path: 'keys', name: 'Keys', icon: 'key', letter: 'k', readsOnApi: 'read_key' },
  { path: 'apis', name: 'APIs', icon: 'box', letter: 'p', readsOnApi: 'read_api' },
  { path: 'limits', name: 'Limits', icon: 'limits', letter: 'l', reads: ['ratelimit.*.read_namespace'] },
  { path: 'live', name: 'Live', icon: 'live', letter: 'v', reads: ['api.*.read_key'] },
  { path: 'why', name: 'Why refused?', icon: 'why', letter: 'y', reads: ['api.*.read_key'] },
  {
    path: 'identities',
    name: 'Identities',
    icon: 'identity',
    letter: 'i',
    reads: ['identity.*.read_identity'],
  },
  {
    path: 'roles',
    name: 'Roles',
    icon: 'role',
    letter: 'r',
    reads: ['rbac.*.read_role'],
    also: 'permissions',
  },
  { path: 'audit', name: 'Audit', icon: 'audit', letter: 'a', reads: ['audit.*.read_event'] },
  { path: 'root-keys', name: 'Root keys', icon: 'rootKey', letter: 't', reads: ['root_key.*.read_root_key'] },
  { path: 'imports', name: 'Imports', icon: 'imports', letter: 'm', reads: ['api.*.create_key'] },
  { path: 'server', name: 'Server', icon: 'server', letter: 's', isForOperator: true },
  { path: 'workspaces', name: 'Workspaces', icon: 'workspace', letter: 'w', isForOperator: true },
]

/** What all screens of a workspace share: the rail, the state of the server, and who is signed in. */
export function Frame({ children }: { children: ComponentChildren }) {
  const health = useData<Liveness>(
    'liveness',
    ({ isRefresh, signal }) => ask('liveness', {}, { isRefresh, signal }),
    {
      everyMs: 10_000,
    },
  )
  const [isMenuOpen, setMenuOpen] = useState(false)
  const [isHelpOpen, setHelpOpen] = useState(false)
  useShortcuts({
    '?': () => setHelpOpen(true),
    j: () => stepRow(1),
    k: () => stepRow(-1),
    ...Object.fromEntries(
      visibleSections().map(({ letter, path }) => [`g ${letter}`, () => go(within(path))]),
    ),
  })
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <div class="frame">
        <aside class="rail" aria-label="Workspace and screens">
          <Rail />
        </aside>
        <div class="body">
          <header class="top">
            <div class="menu-button">
              <Button icon="menu" onClick={() => setMenuOpen(true)}>
                Menu
              </Button>
            </div>
            <Search />
            <Health health={health} />
          </header>
          <Degraded health={health} />
          <main id="main" tabIndex={-1}>
            {children}
          </main>
        </div>
      </div>
      <Toasts />
      {isMenuOpen && <Menu onClose={() => setMenuOpen(false)} />}
      {isHelpOpen && <Help onClose={() => setHelpOpen(false)} />}
    </>
  )
}

/** Gives the focus to what opens the next or previous row of the screen. */
function stepRow(by: 1 | -1): void {
  const rows = [...document.querySelectorAll('main :is(tbody tr, .events > li, .rows > li)')].flatMap(
    (row) => {
      const opens = row.querySelector<HTMLElement>('a, summary')
      return opens === null ? [] : [{ row, opens }]
    },
  )
  const at = rows.findIndex(({ row }) => row.contains(document.activeElement))
  const to = at === -1 ? (by === 1 ? 0 : rows.length - 1) : at + by
  rows[Math.min(rows.length - 1, Math.max(0, to))]?.opens.focus()
}

function Rail() {
  const { path } = place.value
  return (
    <>
      <p class="brand">Tollgate</p>
      <Workspaces />
      <nav aria-label="Screens">
        <ul>
          {visibleSections().map(({ path: to, name, icon, also }) => (
            <li key={to}>
              <a
                href={within(to)}
                aria-current={isIn(path, to) || (also !== undefined && isIn(path, also)) ? 'page' : undefined}
              >
                <Icon name={icon} />
                {name}
              </a>
            </li>
          ))}
          <li class="apart">
            <a href="/docs" target="_blank" rel="noreferrer">
              <Icon name="docs" />
              Documentation
            </a>
          </li>
        </ul>
      </nav>
      <SignedInAs />
    </>
  )
}

/** Without screens on which this root key would see nothing. */
const visibleSections = () =>
  SECTIONS.filter(
    ({ reads, readsOnApi, isForOperator }) =>
      (reads === undefined || holds(...reads)) &&
      (readsOnApi === undefined || holdsOnAny(readsOnApi)) &&
      (isForOperator !== true || own.value?.isOperator === true),
  )

const isIn = (path: string, section: string) => `${path}/`.startsWith(`${within(section)}/`)

/** The workspaces that this browser is signed in to. */
function Workspaces() {
  const sessions = session.value?.sessions ?? []
  return (
    <label class="workspaces">
      <span class="visually-hidden">Workspace</span>
      <select
        value={workspaceId.value ?? ''}
        onChange={(event) => {
          const { value } = event.currentTarget
          go(value === '' ? '/dashboard/sign-in' : `/dashboard/w/${value}/overview`)
        }}
      >
        {sessions.map(({ workspaceId: id, workspaceName }) => (
          <option key={id} value={id}>
            {workspaceName}
          </option>
        ))}
        <option value="">Sign in to another…</option>
      </select>
    </label>
  )
}

function SignedInAs() {
  const rootKey = own.value
  if (rootKey === null) return null
  const { name, rootKeyId, endsAt, expires, isOperator } = rootKey
  return (
    <div class="signed-in">
      <p>
        <b>{name ?? rootKeyId}</b>
        {isOperator && <span class="tag">operator</span>}
      </p>
      <p class="secondary" title={dayAndTime(endsAt)}>
        signed in until {clock(Math.min(endsAt, expires ?? endsAt))}
      </p>
      <label class="theme">
        <Icon name="theme" />
        <span class="visually-hidden">Colours</span>
        <select
          value={theme.value}
          onChange={(event) => {
            const to = THEMES.find((each) => each === event.currentTarget.value)
            if (to !== undefined) setTheme(to)
          }}
        >
          <option value="system">As the system</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
      </label>
      <Button icon="signOut" onClick={() => void signOut()}>
        Sign out
      </Button>
    </div>
  )
}

/** The rail on a phone. A dialog keeps the focus in it, and Esc closes it. */
function Menu({ onClose }: { onClose: () => void }) {
  const ref = useRef<HTMLDialogElement>(null)
  const { path } = place.value
  const opened = useRef(path)
  useEffect(() => {
    ref.current?.showModal()
  }, [])
  useEffect(() => {
    if (path !== opened.current) ref.current?.close()
  }, [path])
  return (
    <dialog ref={ref} class="menu rail" aria-label="Menu" onClose={onClose}>
      <Button kind="quiet" icon="cross" onClick={() => ref.current?.close()}>
        Close
      </Button>
      <Rail />
    </dialog>
  )
}

function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="shortcuts">
        {visibleSections().map(({ letter, name }) => (
          <div key={letter}>
            <dt>
              <kbd>g</kbd> <kbd>{letter}</kbd>
            </dt>
            <dd>{name}</dd>
          </div>
        ))}
        {KEYS.map(({ keys, name }) => (
          <div key={name}>
            <dt>
              {keys.map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{name}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>These shortcuts</dd>
        </div>
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Close</dd>
        </div>
      </dl>
      <label class="check">
        <input
          type="checkbox"
          checked={shortcutsOn.value}
          onChange={(event) => {
            shortcutsOn.value = event.currentTarget.checked
          }}
        />
        Single keys do something
      </label>
    </Dialog>
  )
}

/** What keys do on screens that have it. */
const KEYS = [
  { keys: ['/'], name: 'Search' },
  { keys: ['j', 'k'], name: 'Next and previous row' },
  { keys: ['x'], name: 'Choose the row' },
  { keys: ['c'], name: 'Create' },
  { keys: ['p'], name: 'Pause, and go on' },
]

type State = { kind: 'ok' | 'warn' | 'bad'; word: string; sentence: string | null }

/** What the server says of itself, and what still works: as the table of failures has it. */
export function stateOf({ data, failed }: Pick<Loaded<Liveness>, 'data' | 'failed'>): State | null {
  if (failed !== null && failed.status === 0)
    return {
      kind: 'bad',
      word: 'No answer',
      sentence: 'The server does not answer. What this page shows is from before.',
    }
  if (failed !== null)
    return {
      kind: 'bad',
      word: 'Failing',
      sentence: `The server answers, but cannot decide rate limits: ${failed.message}.`,
    }
  if (data === null) return null
  const { database, ratelimit, fleet } = data.services
  if (database === 'away')
    return {
      kind: 'bad',
      word: 'Database away',
      sentence:
        'The database is away. Rate limits and cached keys without credits go on. Changes, credits and usage fail or wait until it is back.',
    }
  if (database === 'read-only')
    return {
      kind: 'warn',
      word: 'Database read-only',
      sentence:
        'The database takes no writes. Reads, rate limits and cached keys without credits go on. Changes and credits fail until it takes writes again.',
    }
  if (ratelimit === 'degraded')
    return {
      kind: 'warn',
      word: 'Shard restarting',
      sentence:
        'A limiter shard restarts. Calls for its counters fail until it runs again; all others go on.',
    }
  if (fleet === 'away')
    return {
      kind: 'warn',
      word: 'Shared limits away',
      sentence:
        'Where servers count limits together does not answer. Limits go by TOLLGATE_FLEET_OUTAGE until it does; keys, credits, usage and changes go on.',
    }
  if (fleet === 'learning')
    return {
      kind: 'warn',
      word: 'Shared limits learning',
      sentence:
        'Where servers count limits together has forgotten its counts, and learns them from the servers. Limits go by TOLLGATE_FLEET_OUTAGE for a moment; all else goes on.',
    }
  if (data.state === 'draining' || data.state === 'stopping')
    return {
      kind: 'warn',
      word: 'Stopping',
      sentence: 'The server was told to stop. It answers until its drain ends.',
    }
  return { kind: 'ok', word: 'All well', sentence: null }
}

function Health({ health }: { health: Loaded<Liveness> }) {
  const state = stateOf(health)
  return (
    <p class={`chip ${state?.kind ?? ''}`} role="status">
      {state !== null && <Icon name={state.kind === 'ok' ? 'check' : 'warning'} />}
      {state?.word ?? 'Asking…'}
    </p>
  )
}

function Degraded({ health }: { health: Loaded<Liveness> }) {
  const state = stateOf(health)
  if (state === null || state.sentence === null) return null
  return (
    <section class={`bar-notice ${state.kind}`} aria-label="State of the server">
      <Icon name="warning" />
      <p>{state.sentence}</p>
    </section>
  )
}
