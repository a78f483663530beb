import { signal } from '@preact/signals'
import type { ComponentType } from 'preact'
import { match } from './match.ts'

type Screen = ComponentType
type Entry = { path: string; load: () => Promise<Screen> }

/** The screens of a workspace, by their paths in it. Each is a file of its own, which the browser loads when it is wanted. */
const SCREENS: readonly Entry[] = [
  { path: 'overview', load: () => import('./screens/overview.tsx').then((file) => file.Overview) },
  { path: 'keys', load: () => import('./screens/keys.tsx').then((file) => file.Keys) },
  { path: 'keys/:id', load: () => import('./screens/key.tsx').then((file) => file.Key) },
  { path: 'apis', load: () => import('./screens/apis.tsx').then((file) => file.Apis) },
  { path: 'apis/:id', load: () => import('./screens/api.tsx').then((file) => file.Api) },
  { path: 'identities', load: () => import('./screens/identities.tsx').then((file) => file.Identities) },
  { path: 'identities/:id', load: () => import('./screens/one.tsx').then((file) => file.IdentityScreen) },
  { path: 'roles', load: () => import('./screens/roles.tsx').then((file) => file.Roles) },
  { path: 'roles/:id', load: () => import('./screens/one.tsx').then((file) => file.RoleScreen) },
  { path: 'permissions', load: () => import('./screens/roles.tsx').then((file) => file.Permissions) },
  { path: 'permissions/:id', load: () => import('./screens/one.tsx').then((file) => file.PermissionScreen) },
  { path: 'root-keys', load: () => import('./screens/root-keys.tsx').then((file) => file.RootKeys) },
  { path: 'audit', load: () => import('./screens/audit.tsx').then((file) => file.Audit) },
  { path: 'imports', load: () => import('./screens/imports.tsx').then((file) => file.Imports) },
  { path: 'server', load: () => import('./screens/server.tsx').then((file) => file.Server) },
  { path: 'workspaces', load: () => import('./screens/workspaces.tsx').then((file) => file.Workspaces) },
  { path: 'limits', load: () => import('./screens/limits.tsx').then((file) => file.Limits) },
  {
    path: 'limits/:namespace',
    load: () => import('./screens/namespace.tsx').then((file) => file.NamespaceScreen),
  },
  {
    path: 'limits/:namespace/:identifier',
    load: () => import('./screens/identifier.tsx').then((file) => file.IdentifierScreen),
  },
  { path: 'live', load: () => import('./screens/live.tsx').then((file) => file.Live) },
  { path: 'why', load: () => import('./screens/why.tsx').then((file) => file.Why) },
]

const loaded = signal<ReadonlyMap<Entry, Screen>>(new Map())
const failed = signal<ReadonlySet<Entry>>(new Set())

/**
 * The screen of an address of the dashboard. Reading it in a component renders that again once its file came.
 * @returns `absent`: there is no such screen; `failed`: its file could not be loaded.
 */
export function screenAt(path: string): Screen | 'absent' | 'loading' | 'failed' {
  const entry = entryAt(path)
  if (entry === undefined) return 'absent'
  const screen = loaded.value.get(entry)
  if (screen !== undefined) return screen
  return failed.value.has(entry) ? 'failed' : 'loading'
}

/** Loads the file of the screen of an address, once; then, while nothing is asked for, those of all others. */
export async function loadScreen(path: string): Promise<void> {
  const entry = entryAt(path)
  if (entry === undefined || loaded.value.has(entry)) return
  const isFirst = loaded.value.size === 0
  try {
    await load(entry)
  } catch {
    failed.value = new Set([...failed.value, entry])
    return
  }
  if (isFirst) setTimeout(() => void loadOthers(), 1000)
}

/** An open page then has all its files, even after an upgrade of the server. */
async function loadOthers(): Promise<void> {
  for (const entry of SCREENS)
    try {
      if (!loaded.value.has(entry)) await load(entry)
    } catch {
      return // the rest is loaded when it is opened
    }
}

async function load(entry: Entry): Promise<void> {
  const screen = await entry.load()
  loaded.value = new Map([...loaded.value, [entry, screen]])
}

const entryAt = (path: string) =>
  SCREENS.find((each) => match(`/dashboard/w/:workspace/${each.path}`, path) !== null)
