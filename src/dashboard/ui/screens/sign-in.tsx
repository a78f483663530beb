import { useEffect, useRef, useState } from 'preact/hooks'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { Icon } from '../parts/icons.tsx'
import { ended, session, signIn } from '../session.ts'

/** One field. The root key is sent once and kept nowhere: the browser gets a sealed cookie that no script can read. */
export function SignIn() {
  const [rootKey, setRootKey] = useState('')
  const heading = useRef<HTMLHeadingElement>(null)
  const { start, isBusy, failed } = useAction(async () => {
    await signIn(rootKey.trim())
    setRootKey('')
  })
  useEffect(() => {
    document.title = 'Sign in · Tollgate'
    if (ended.value !== null) heading.current?.focus()
  }, [])
  const maySignIn = session.value?.maySignIn === true
  return (
    <main class="sign-in" id="main">
      <div class="card">
        <p class="brand">Tollgate</p>
        <h1 ref={heading} tabIndex={-1}>
          Sign in
        </h1>
        {ended.value !== null && (
          <p class="notice warn" role="status">
            <Icon name="warning" />
            <span>{capitalized(ended.value)}.</span>
          </p>
        )}
        {maySignIn ? (
          <form
            onSubmit={(event) => {
              event.preventDefault()
              void start()
            }}
          >
            <Field
              label="Root key"
              isSecret
              autoComplete="off"
              required
              isMono
              maxLength={512}
              value={rootKey}
              onInput={setRootKey}
              hint={
                <>
                  Paste a root key. The first start wrote one to <code>root-key</code> in the data directory.
                </>
              }
            />
            {failed !== null && <Failure failed={failed} />}
            <Button type="submit" kind="main" isBusy={isBusy}>
              {isBusy ? 'Signing in…' : 'Sign in'}
            </Button>
          </form>
        ) : (
          <div class="notice bad">
            <Icon name="warning" />
            <div>
              <p>This page came over plain HTTP from another machine, where others could read a root key.</p>
              <p>
                Open it over HTTPS, or through a tunnel:
                <br />
                <code>
                  ssh -L {portOf()}:localhost:{portOf()} {location.hostname}
                </code>
              </p>
            </div>
          </div>
        )}
        <p class="secondary">
          A session ends after an hour without use, after twelve hours, and as soon as its root key is
          revoked. <a href="/docs/dashboard">About the dashboard</a>
        </p>
      </div>
    </main>
  )
}

const portOf = () => (location.port === '' ? '80' : location.port)

const capitalized = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)
