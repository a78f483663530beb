import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useData } from '../data.ts'
import { Button, Failure, Field, Snippet, useAction } from '../parts/controls.tsx'
import { SecretDialog } from '../parts/dialog.tsx'
import { Icon } from '../parts/icons.tsx'
import { ask, lacking, session, workspaceId } from '../session.ts'

/** What the server has of the first steps. */
type Found = {
  apiId: string | null
  keys: number
  verified: number
  namespaces: number
  rootKeys: number
}

type Shown = { title: string; secret: string; fileName: string; about: string }

/** From the first start to a verified key. Each step ticks itself when the server has seen it, whoever did it. */
export function Checklist() {
  const id = workspaceId.value ?? ''
  const [isHidden, setHidden] = useState(isStoredHidden(id))
  const [isDone, setDone] = useState(false)
  const loaded = useData(
    `checklist ${id}`,
    async ({ signal, isRefresh }) => {
      const found = await find({ signal, isRefresh })
      setDone(stepsOf(found).every(Boolean))
      return found
    },
    { everyMs: isHidden || isDone ? null : 2_000 },
  )
  const [shown, setShown] = useState<Shown | null>(null)
  /** The key made here, for the command that verifies it. */
  const [key, setKey] = useState<string | null>(null)
  const { data } = loaded
  const steps = data === null ? [] : stepsOf(data)
  const dialog = shown !== null && <SecretDialog {...shown} onClose={() => setShown(null)} />
  // It stays while what it just made is shown.
  if (data === null || isHidden || (isDone && shown === null)) return dialog === false ? null : dialog
  const current = steps.indexOf(false)
  const url = session.value?.apiUrl ?? location.origin
  return (
    <section class="checklist" aria-labelledby="checklist">
      <header>
        <h2 id="checklist">First steps</h2>
        <p class="secondary">
          {steps.filter(Boolean).length} of {steps.length} done
        </p>
        <Button
          kind="quiet"
          icon="cross"
          onClick={() => {
            hide(id)
            setHidden(true)
          }}
        >
          Hide
        </Button>
      </header>
      <ol>
        <Step title="Create an API" about="A set of keys, for example all keys of one product." {...at(0)}>
          <MakeApi onMade={loaded.reload} />
        </Step>
        <Step title="Create a key" about="What a user of yours sends with each request." {...at(1)}>
          <MakeKey
            apiId={data.apiId ?? ''}
            onMade={(made) => {
              setKey(made)
              setShown({
                title: 'The new key',
                secret: made,
                fileName: 'key.txt',
                about: 'Give it to whoever shall use it.',
              })
              loaded.reload()
            }}
          />
        </Step>
        <Step
          title="Verify it"
          about="Your backend asks this for each request that carries a key."
          {...at(2)}
        >
          <Snippet
            text={`curl -X POST ${url}/v1/keys.verifyKey \\\n  -H 'Content-Type: application/json' \\\n  -d '{"key": "${key ?? 'the key'}"}'`}
          />
          <p class="secondary">This step ticks itself within two seconds.</p>
        </Step>
        <Step title="Limit something" about="Any identifier: a user, an address, a tenant." {...at(3)}>
          <Snippet
            text={`curl -X POST ${url}/v1/ratelimits.limit \\\n  -H "Authorization: Bearer $ROOT_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '{"namespace": "email.send", "identifier": "user_123", "limit": 10, "duration": 60000}'`}
          />
        </Step>
        <Step
          title="Create a root key for your application"
          about="It may verify keys and count limits, and nothing else. Keep the operator’s root key to yourself."
          {...at(4)}
        >
          <MakeRootKey
            onMade={(made) => {
              setShown({
                title: 'The new root key',
                secret: made,
                fileName: 'root-key.txt',
                about: 'Put it into the environment of your application.',
              })
              loaded.reload()
            }}
          />
        </Step>
      </ol>
      {dialog}
    </section>
  )

  function at(index: number) {
    return { isDone: steps[index] === true, isOpen: index === current }
  }
}

const stepsOf = ({ apiId, keys, verified, namespaces, rootKeys }: Found) => [
  apiId !== null,
  keys > 0,
  verified > 0,
  namespaces > 0,
  // The one that signed in for the first time is not the application's.
  rootKeys > 1,
]

function Step({
  title,
  about,
  isDone,
  isOpen,
  children,
}: {
  title: string
  about: string
  isDone: boolean
  isOpen: boolean
  children: ComponentChildren
}) {
  return (
    <li class={isDone ? 'done' : isOpen ? 'open' : ''}>
      <span class="mark">{isDone && <Icon name="check" />}</span>
      <div>
        <h3>
          {title}
          {isDone && <span class="visually-hidden">, done</span>}
        </h3>
        {isOpen && (
          <>
            <p class="secondary">{about}</p>
            {children}
          </>
        )}
      </div>
    </li>
  )
}

function NameForm({
  label,
  placeholder,
  button,
  permission,
  make,
}: {
  label: string
  placeholder: string
  button: string
  permission: string
  make: (name: string) => Promise<void>
}) {
  const [name, setName] = useState('')
  const { start, isBusy, failed } = useAction(() => make(name.trim()))
  return (
    <form
      class="line"
      onSubmit={(event) => {
        event.preventDefault()
        void start()
      }}
    >
      <Field
        label={label}
        value={name}
        onInput={setName}
        placeholder={placeholder}
        required
        maxLength={256}
      />
      <Button type="submit" kind="main" icon="plus" isBusy={isBusy} lacking={lacking(permission)}>
        {button}
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </form>
  )
}

const MakeApi = ({ onMade }: { onMade: () => void }) => (
  <NameForm
    label="Name"
    placeholder="my-api"
    button="Create API"
    permission="api.*.create_api"
    make={async (name) => {
      await ask('apis.createApi', { name })
      onMade()
    }}
  />
)

const MakeKey = ({ apiId, onMade }: { apiId: string; onMade: (key: string) => void }) => (
  <NameForm
    label="Name"
    placeholder="web checkout"
    button="Create key"
    permission="api.*.create_key"
    make={async (name) => onMade((await ask('keys.createKey', { apiId, name, prefix: 'demo' })).key)}
  />
)

const MakeRootKey = ({ onMade }: { onMade: (rootKey: string) => void }) => (
  <NameForm
    label="Name"
    placeholder="checkout service"
    button="Create root key"
    permission="root_key.*.create_root_key"
    make={async (name) =>
      onMade((await ask('rootKeys.createRootKey', { name, permissions: APPLICATION })).rootKey)
    }
  />
)

const APPLICATION = ['api.*.verify_key', 'ratelimit.*.limit', 'ratelimit.*.create_namespace']

async function find(options: { signal: AbortSignal; isRefresh: boolean }): Promise<Found> {
  const [{ apis }, { total: keys }, { total: namespaces }, { total: rootKeys }, usage] = await Promise.all([
    ask('apis.listApis', { limit: 1 }, options),
    ask('keys.searchKeys', { limit: 1 }, options),
    ask('ratelimits.listNamespaces', { limit: 1 }, options),
    ask('rootKeys.listRootKeys', { limit: 1 }, options),
    ask('analytics.getOverview', { start: Date.now() - 24 * 3_600_000 }, options),
  ])
  const apiId = apis[0]?.id ?? null
  const verified = usage.hours.reduce((sum, hour) => sum + hour.total, 0)
  return { apiId, keys, verified, namespaces, rootKeys }
}

const storedAs = (workspaceId: string) => `checklist ${workspaceId}`

function isStoredHidden(workspaceId: string): boolean {
  try {
    return localStorage.getItem(storedAs(workspaceId)) === 'hidden'
  } catch {
    return false
  }
}

function hide(workspaceId: string): void {
  try {
    localStorage.setItem(storedAs(workspaceId), 'hidden')
  } catch {
    // without storage it comes back with the next load
  }
}
