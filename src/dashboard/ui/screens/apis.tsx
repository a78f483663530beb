import { useState } from 'preact/hooks'
import type { ListApisReply } from '../../../doors/v1/apis/schema.ts'
import { useData } from '../data.ts'
import { day, exact, utc } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { CallText } from '../parts/call.tsx'
import { CardHead, CardRow } from '../parts/card.tsx'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { Dialog } from '../parts/dialog.tsx'
import { Panel } from '../parts/panel.tsx'
import { CsvButton } from '../parts/save-csv.tsx'
import { useTitle } from '../parts/title.tsx'
import { toast } from '../parts/toast.tsx'
import { go, place, setQuery } from '../route.ts'
import { ask, lacking, within, workspaceId } from '../session.ts'

/** APIs: sets of keys, each with the settings of its keys. */
export function Apis() {
  const heading = useTitle('APIs')
  const { query } = place.value
  const cursor = query.get('cursor') ?? ''
  const found = useData(`apis ${workspaceId.value} ${cursor}`, ({ signal }) =>
    ask('apis.listApis', { limit: 50, ...(cursor !== '' && { cursor }) }, { signal }),
  )
  const [isCreating, setCreating] = useState(query.has('create'))
  const lacksCreate = lacking('api.*.create_api')
  useShortcuts({ c: () => lacksCreate === null && setCreating(true) })
  const total = found.data?.total
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={lacksCreate} onClick={() => setCreating(true)}>
          Create API
        </Button>
      </div>
      <Panel
        title={total === undefined ? 'All APIs' : `${exact(total)} ${total === 1 ? 'API' : 'APIs'}`}
        loaded={found}
        isWide
      >
        {({ apis, cursor: next }) =>
          apis.length === 0 ? (
            <div class="empty stack">
              <p>There are no APIs yet. An API is a set of keys, for example all keys of one product.</p>
              <p>
                <Button kind="main" icon="plus" lacking={lacksCreate} onClick={() => setCreating(true)}>
                  Create the first API
                </Button>
              </p>
            </div>
          ) : (
            <>
              <div class="scrolling plain">
                <table class="list">
                  <thead>
                    <tr>
                      <th scope="col">Name</th>
                      <th scope="col" class="number">
                        Keys
                      </th>
                      <th scope="col" class="wide-only">
                        Prefix
                      </th>
                      <th scope="col" class="wide-only">
                        Addresses
                      </th>
                      <th scope="col" class="wide-only">
                        Created
                      </th>
                      <CardHead />
                    </tr>
                  </thead>
                  <tbody>
                    {apis.map((api) => (
                      <CardRow key={api.id} name={api.name} columns={5} facts={factsOf(api)}>
                        <th scope="row">
                          <a href={within(`apis/${api.id}`)}>{api.name}</a>
                          {api.deleteProtection && <span class="chip small">Protected</span>}
                          <code class="start">{api.id}</code>
                        </th>
                        <td class="number">
                          <a
                            href={within(`keys?api=${api.id}`)}
                            aria-label={`${api.keys} keys of ${api.name}`}
                          >
                            {exact(api.keys)}
                          </a>
                        </td>
                        {factsOf(api).map(({ name, value }) => (
                          <td key={name} class="wide-only">
                            {value}
                          </td>
                        ))}
                      </CardRow>
                    ))}
                  </tbody>
                </table>
              </div>
              <div class="under">
                <span class="grows" />
                <CsvButton
                  file="apis.csv"
                  rows={[
                    ['id', 'name', 'keys', 'prefix', 'bytes', 'protected', 'addresses', 'created'],
                    ...apis.map((api) => [
                      api.id,
                      api.name,
                      String(api.keys),
                      api.defaultPrefix ?? '',
                      String(api.defaultBytes),
                      String(api.deleteProtection),
                      (api.ipWhitelist ?? []).join(' '),
                      utc(api.createdAt),
                    ]),
                  ]}
                />
                <nav class="pages" aria-label="Pages">
                  {cursor !== '' && (
                    <Button onClick={() => setQuery({ cursor: null }, { replaces: false })}>First</Button>
                  )}
                  {next !== undefined && (
                    <Button onClick={() => setQuery({ cursor: next }, { replaces: false })}>Next</Button>
                  )}
                </nav>
              </div>
            </>
          )
        }
      </Panel>
      {isCreating && (
        <CreateApi
          onClose={() => {
            setCreating(false)
            if (query.has('create')) setQuery({ create: null })
          }}
        />
      )}
    </>
  )
}

function CreateApi({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const input = { name: name.trim() }
  const { start, isBusy, failed } = useAction(async () => {
    const { apiId } = await ask('apis.createApi', input)
    toast('Created.')
    go(within(`apis/${apiId}`))
  })
  const isOfName = failed?.message.startsWith('name:') === true
  return (
    <Dialog title="Create API" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        <Field
          label="Name"
          value={name}
          onInput={setName}
          placeholder="my-api"
          maxLength={256}
          hint="What its keys open: a product, a service. It need not be unique."
          error={isOfName ? `${failed?.message} (${failed?.requestId})` : null}
        />
        <CallText method="apis.createApi" input={input} />
        {failed !== null && !isOfName && <Failure failed={failed} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="main" isBusy={isBusy}>
            {isBusy ? 'Creating…' : 'Create API'}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

/** Columns behind the number of keys; on a phone they are in a card. */
const factsOf = (api: ListApisReply['apis'][number]) => [
  { name: 'Prefix', value: api.defaultPrefix === null ? 'none' : <code>{api.defaultPrefix}</code> },
  { name: 'Addresses', value: api.ipWhitelist === null ? 'any' : `${api.ipWhitelist.length} allowed` },
  { name: 'Created', value: <span title={utc(api.createdAt)}>{day(api.createdAt)}</span> },
]
