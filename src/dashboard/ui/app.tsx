import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { CallFailed } from './api.ts'
import { Frame } from './frame.tsx'
import { match } from './match.ts'
import { Failure } from './parts/controls.tsx'
import { go, place } from './route.ts'
import { Api } from './screens/api.tsx'
import { Apis } from './screens/apis.tsx'
import { Audit } from './screens/audit.tsx'
import { IdentifierScreen } from './screens/identifier.tsx'
import { Identities } from './screens/identities.tsx'
import { Imports } from './screens/imports.tsx'
import { Key } from './screens/key.tsx'
import { Keys } from './screens/keys.tsx'
import { Limits } from './screens/limits.tsx'
import { Live } from './screens/live.tsx'
import { NamespaceScreen } from './screens/namespace.tsx'
import { NotFound } from './screens/not-found.tsx'
import { IdentityScreen, PermissionScreen, RoleScreen } from './screens/one.tsx'
import { Overview } from './screens/overview.tsx'
import { Permissions, Roles } from './screens/roles.tsx'
import { RootKeys } from './screens/root-keys.tsx'
import { Server } from './screens/server.tsx'
import { SignIn } from './screens/sign-in.tsx'
import { Why } from './screens/why.tsx'
import { Workspaces } from './screens/workspaces.tsx'
import { own, session, workspaceId } from './session.ts'

/** Why the page could not even ask who is signed in. */
export const failedStart = signal<Error | null>(null)

/** The screens of a workspace, by their paths in it. */
const SCREENS = [
  { path: 'overview', screen: Overview },
  { path: 'keys', screen: Keys },
  { path: 'keys/:id', screen: Key },
  { path: 'apis', screen: Apis },
  { path: 'apis/:id', screen: Api },
  // Who may what, and who did what
  { path: 'identities', screen: Identities },
  { path: 'identities/:id', screen: IdentityScreen },
  { path: 'roles', screen: Roles },
  { path: 'roles/:id', screen: RoleScreen },
  { path: 'permissions', screen: Permissions },
  { path: 'permissions/:id', screen: PermissionScreen },
  { path: 'root-keys', screen: RootKeys },
  { path: 'audit', screen: Audit },
  { path: 'imports', screen: Imports },
  { path: 'server', screen: Server },
  { path: 'workspaces', screen: Workspaces },
  { path: 'limits', screen: Limits },
  { path: 'limits/:namespace', screen: NamespaceScreen },
  { path: 'limits/:namespace/:identifier', screen: IdentifierScreen },
  { path: 'live', screen: Live },
  { path: 'why', screen: Why },
] as const

export function App() {
  const { path } = place.value
  const isHome = path.replace(/\/$/, '') === '/dashboard'
  const latest = session.value?.sessions.at(-1)
  useEffect(() => {
    if (isHome && latest !== undefined) go(`/dashboard/w/${latest.workspaceId}/overview`, { replaces: true })
  }, [isHome, latest])
  if (session.value === null)
    return failedStart.value === null ? null : (
      <main class="sign-in" id="main">
        <div class="card">
          <h1>Tollgate</h1>
          <Failure failed={asFailed(failedStart.value)} onRetry={() => location.reload()} />
        </div>
      </main>
    )
  if (isHome && latest !== undefined) return null
  // A link into a workspace is kept in the address bar, and shown after the sign-in.
  if (
    isHome ||
    match('/dashboard/sign-in', path) !== null ||
    (workspaceId.value !== null && own.value === null)
  )
    return <SignIn />
  if (own.value === null) return <SignIn />
  const Screen =
    SCREENS.find((each) => match(`/dashboard/w/:workspace/${each.path}`, path) !== null)?.screen ?? NotFound
  return (
    <Frame>
      <Screen key={path} />
    </Frame>
  )
}

const asFailed = (cause: Error) =>
  cause instanceof CallFailed
    ? cause
    : new CallFailed(cause.message, { status: 0, code: 'FAILED', requestId: null })
