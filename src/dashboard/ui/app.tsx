import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { CallFailed } from './api.ts'
import { Frame } from './frame.tsx'
import { match } from './match.ts'
import { Failure } from './parts/controls.tsx'
import { Loading } from './parts/panel.tsx'
import { finishArriving, go, place } from './route.ts'
import { NotFound } from './screens/not-found.tsx'
import { SignIn } from './screens/sign-in.tsx'
import { loadScreen, screenAt } from './screens.ts'
import { own, session, workspaceId } from './session.ts'

/** Why the page could not even ask who is signed in. */
export const failedStart = signal<Error | null>(null)

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
  return (
    <Frame>
      <ScreenAt key={path} path={path} />
    </Frame>
  )
}

/** The screen of an address, as soon as its file is there. */
function ScreenAt({ path }: { path: string }) {
  const Screen = screenAt(path)
  useEffect(() => {
    if (Screen === 'loading') void loadScreen(path)
    else finishArriving()
  }, [Screen])
  if (Screen === 'absent') return <NotFound />
  if (Screen === 'loading') return <Loading />
  if (Screen === 'failed')
    return (
      <Failure
        failed={
          new CallFailed('This screen could not be loaded. The server is away, or has another version now.', {
            status: 0,
            code: 'NOT_LOADED',
            requestId: null,
          })
        }
        onRetry={() => location.reload()}
      />
    )
  return <Screen />
}

const asFailed = (cause: Error) =>
  cause instanceof CallFailed
    ? cause
    : new CallFailed(cause.message, { status: 0, code: 'FAILED', requestId: null })
