import { useState } from 'preact/hooks'
import type { GetApiReply } from '../../../doors/v1/apis/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, utc } from '../format.ts'
import { CallText } from '../parts/call.tsx'
import { Button, CopyButton, Failure, Field, Snippet, useAction } from '../parts/controls.tsx'
import { Confirm, Dialog } from '../parts/dialog.tsx'
import { Area, Check } from '../parts/form.tsx'
import { Missing } from '../parts/missing.tsx'
import { Panel } from '../parts/panel.tsx'
import { useTitle } from '../parts/title.tsx'
import { toast } from '../parts/toast.tsx'
import { go, partsOf } from '../route.ts'
import { ask, lackingOn, within, workspaceId } from '../session.ts'

/** One API: its settings, its keys, and the whole object as JSON. */
export function Api() {
  const id = partsOf('apis/:id')?.id ?? ''
  const loaded = useData(`api ${workspaceId.value} ${id}`, ({ signal }) =>
    ask('apis.getApi', { apiId: id }, { signal }),
  )
  const { data, failed, reload } = loaded
  const heading = useTitle(data?.name ?? 'API')
  const [open, setOpen] = useState<'edit' | 'delete' | null>(null)
  if (failed?.code === 'NOT_FOUND')
    return (
      <>
        <div class="head">{heading}</div>
        <Missing kind="API" id={id}>
          <a href={within('apis')}>All APIs</a>
        </Missing>
      </>
    )
  return (
    <>
      <p class="crumbs">
        <a href={within('apis')}>APIs</a>
      </p>
      <div class="head">
        {heading}
        {data !== null && (
          <div class="actions">
            <a class="button plain" href={within(`keys?api=${id}`)}>
              {counted(data.keys, 'key')}
            </a>
            <Button icon="edit" lacking={lackingOn(id, 'update_api')} onClick={() => setOpen('edit')}>
              Edit
            </Button>
            <Button
              kind="danger"
              icon="trash"
              lacking={
                lackingOn(id, 'delete_api') ??
                (data.deleteProtection ? 'is protected: take the protection off first' : null)
              }
              onClick={() => setOpen('delete')}
            >
              Delete…
            </Button>
          </div>
        )}
      </div>
      <div class="panels">
        <Panel title="Settings" loaded={loaded}>
          {(api) => (
            <dl class="pairs">
              <dt>Id</dt>
              <dd class="copied">
                <code>{api.id}</code> <CopyButton text={api.id} />
              </dd>
              <dt>Created</dt>
              <dd title={utc(api.createdAt)}>{dayAndTime(api.createdAt)}</dd>
              <dt>Prefix of new keys</dt>
              <dd>{api.defaultPrefix === null ? 'none' : <code>{api.defaultPrefix}</code>}</dd>
              <dt>Random bytes</dt>
              <dd>{api.defaultBytes}</dd>
              <dt>Recoverable keys</dt>
              <dd>{api.storeEncryptedKeys ? 'allowed' : 'not allowed'}</dd>
              <dt>Delete protection</dt>
              <dd>{api.deleteProtection ? 'on' : 'off'}</dd>
              <dt>Allowed addresses</dt>
              <dd>
                {api.ipWhitelist === null ? (
                  'any'
                ) : (
                  <ul class="tags">
                    {api.ipWhitelist.map((each) => (
                      <li key={each}>
                        <code>{each}</code>
                      </li>
                    ))}
                  </ul>
                )}
              </dd>
            </dl>
          )}
        </Panel>
        <Panel title="JSON" loaded={loaded}>
          {(api) => <Snippet text={JSON.stringify(api, null, 2)} />}
        </Panel>
      </div>
      {data !== null && open === 'edit' && (
        <EditApi api={data} onClose={() => setOpen(null)} onChanged={reload} />
      )}
      {data !== null && open === 'delete' && (
        <Confirm
          title={`Delete ${data.name}?`}
          button="Delete API"
          busy="Deleting…"
          typed={data.keys > 0 ? data.name : null}
          onClose={() => setOpen(null)}
          run={async () => {
            await ask('apis.deleteApi', { apiId: id })
            toast(`Deleted ${data.name}.`)
            go(within('apis'))
          }}
        >
          <p>
            {data.keys === 0
              ? 'It has no keys. This cannot be undone.'
              : `Its ${exact(data.keys)} ${data.keys === 1 ? 'key is' : 'keys are'} refused from then on, NOT_FOUND. This cannot be undone.`}
          </p>
        </Confirm>
      )}
    </>
  )
}

type Settings = {
  name: string
  defaultPrefix: string
  defaultBytes: string
  storeEncryptedKeys: boolean
  deleteProtection: boolean
  /** One a line. */
  addresses: string
}

const settingsOf = (api: GetApiReply): Settings => ({
  name: api.name,
  defaultPrefix: api.defaultPrefix ?? '',
  defaultBytes: String(api.defaultBytes),
  storeEncryptedKeys: api.storeEncryptedKeys,
  deleteProtection: api.deleteProtection,
  addresses: (api.ipWhitelist ?? []).join('\n'),
})

function inputOf({ name, defaultPrefix, defaultBytes, addresses, ...rest }: Settings) {
  const listed = addresses.split(/[\s,]+/).filter((each) => each !== '')
  return {
    name: name.trim(),
    defaultPrefix: defaultPrefix.trim() || null,
    defaultBytes: Number(defaultBytes),
    ipWhitelist: listed.length === 0 ? null : listed,
    ...rest,
  }
}

/** Changes an API. Only what was changed is sent. */
function EditApi({
  api,
  onClose,
  onChanged,
}: {
  api: GetApiReply
  onClose: () => void
  onChanged: () => void
}) {
  const [settings, setSettings] = useState(settingsOf(api))
  const before = Object.entries(inputOf(settingsOf(api)))
  const now: Record<string, unknown> = inputOf(settings)
  const changed = Object.fromEntries(
    before.flatMap(([field, value]) =>
      JSON.stringify(now[field]) === JSON.stringify(value) ? [] : [[field, now[field]]],
    ),
  )
  const input = { apiId: api.id, ...changed }
  const { start, isBusy, failed } = useAction(async () => {
    await ask('apis.updateApi', input)
    toast('Saved. Verifications use it from now on.')
    onChanged()
    onClose()
  })
  const refused = /^(\w+)(\.\d+)?:/.exec(failed?.message ?? '')?.[1] ?? null
  const error = (field: string) =>
    failed !== null && refused === field ? `${failed.message} (${failed.requestId})` : null
  const set =
    <Name extends keyof Settings>(name: Name) =>
    (value: Settings[Name]) =>
      setSettings({ ...settings, [name]: value })
  return (
    <Dialog title="Edit API" onClose={onClose} isWide>
      <form
        class="sides"
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          if (Object.keys(changed).length > 0) void start()
        }}
      >
        <div class="stack">
          <Field
            label="Name"
            value={settings.name}
            onInput={set('name')}
            maxLength={256}
            error={error('name')}
          />
          <div class="two">
            <Field
              label="Prefix of new keys"
              value={settings.defaultPrefix}
              onInput={set('defaultPrefix')}
              maxLength={16}
              isMono
              hint="Empty = none."
              error={error('defaultPrefix')}
            />
            <Field
              label="Random bytes"
              value={settings.defaultBytes}
              onInput={set('defaultBytes')}
              inputMode="numeric"
              hint="16 to 255."
              error={error('defaultBytes')}
            />
          </div>
          <Area
            label="Allowed addresses"
            value={settings.addresses}
            onInput={set('addresses')}
            hint="Addresses and CIDR ranges from which its keys may be used, one a line. Empty = any."
            error={error('ipWhitelist')}
          />
          <Check
            label="Recoverable keys"
            checked={settings.storeEncryptedKeys}
            onChange={set('storeEncryptedKeys')}
            hint="Keys may be stored encrypted too, so that they can be shown again."
          />
          <Check
            label="Delete protection"
            checked={settings.deleteProtection}
            onChange={set('deleteProtection')}
            hint="While it is on, the API cannot be deleted."
          />
        </div>
        <div class="stack">
          <CallText method="apis.updateApi" input={input} />
          {failed !== null && (refused === null || !(refused in now)) && <Failure failed={failed} />}
          <footer>
            <Button onClick={onClose}>Cancel</Button>
            <Button
              type="submit"
              kind="main"
              isBusy={isBusy}
              lacking={Object.keys(changed).length === 0 ? 'nothing is changed yet' : null}
            >
              {isBusy ? 'Saving…' : 'Save'}
            </Button>
          </footer>
        </div>
      </form>
    </Dialog>
  )
}
