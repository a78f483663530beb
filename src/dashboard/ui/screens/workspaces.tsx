import { useState } from 'preact/hooks'
import type { ListWorkspacesReply } from '../../../doors/v1/workspaces/schema.ts'
import { useData } from '../data.ts'
import { day, exact, utc } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { CallText } from '../parts/call.tsx'
import { Button, Field } from '../parts/controls.tsx'
import { Confirm, FormDialog, SecretDialog } from '../parts/dialog.tsx'
import { Panel } from '../parts/panel.tsx'
import { Pager, Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { place } from '../route.ts'
import { ask, own, session } from '../session.ts'
import { Act } from './keys-that-hold.tsx'

type Row = ListWorkspacesReply['workspaces'][number]
type Open = { what: 'create' } | { what: 'rename' | 'rootKey' | 'disable'; row: Row }

/** Tenants of this server, for operators. */
export function Workspaces() {
  const heading = useTitle('Workspaces')
  const [open, setOpen] = useState<Open | null>(null)
  const [made, setMade] = useState<{ about: string; rootKey: string } | null>(null)
  const { query } = place.value
  const loaded = useData(`workspaces ${query.get('after')}`, (options) =>
    ask('workspaces.listWorkspaces', { limit: 50, cursor: query.get('after') }, options),
  )
  const missing = own.value?.isOperator === true ? null : 'needs an operator root key'
  useShortcuts({ c: () => missing === null && setOpen({ what: 'create' }) })
  const close = () => setOpen(null)
  const isSignedIn = (id: string) =>
    session.value?.sessions.some(({ workspaceId }) => workspaceId === id) === true
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setOpen({ what: 'create' })}>
          Create workspace
        </Button>
      </div>
      <Panel title="All workspaces" loaded={loaded}>
        {({ workspaces, total, cursor }) => (
          <>
            <Table<Row>
              label="Workspaces"
              hasActions
              rows={workspaces}
              keyOf={({ id }) => id}
              columns={[
                {
                  name: 'Name',
                  cell: ({ id, name }) => (
                    <>
                      {isSignedIn(id) ? <a href={`/dashboard/w/${id}/overview`}>{name}</a> : name}
                      {id === own.value?.workspaceId && <span class="tag">this one</span>}
                    </>
                  ),
                },
                { name: 'Id', isMinor: true, cell: ({ id }) => <code>{id}</code> },
                { name: 'State', cell: ({ enabled }) => (enabled ? 'Active' : 'Disabled') },
                {
                  name: 'Created',
                  isMinor: true,
                  cell: ({ createdAt }) => <span title={utc(createdAt)}>{day(createdAt)}</span>,
                },
                {
                  name: 'Actions',
                  cell: (row) => (
                    <div class="row-actions">
                      <Button kind="quiet" lacking={missing} onClick={() => setOpen({ what: 'rename', row })}>
                        Rename
                      </Button>
                      {row.enabled ? (
                        <Button
                          kind="quiet"
                          lacking={missing ?? (row.id === own.value?.workspaceId ? 'you are in it' : null)}
                          onClick={() => setOpen({ what: 'disable', row })}
                        >
                          Disable…
                        </Button>
                      ) : (
                        <Act
                          name="Enable"
                          lacking={missing}
                          run={() =>
                            ask('workspaces.updateWorkspace', { workspaceId: row.id, enabled: true })
                          }
                          onDone={loaded.reload}
                        />
                      )}
                      <Button
                        kind="quiet"
                        lacking={missing}
                        onClick={() => setOpen({ what: 'rootKey', row })}
                      >
                        New root key
                      </Button>
                    </div>
                  ),
                },
              ]}
            />
            <Pager cursor={cursor}>{exact(total)} in all</Pager>
          </>
        )}
      </Panel>
      {open?.what === 'create' && (
        <NameDialog
          title="Create workspace"
          button="Create"
          method="workspaces.createWorkspace"
          inputOf={(name) => ({ name })}
          run={async (input) => {
            const { rootKey } = await ask('workspaces.createWorkspace', input)
            setMade({
              about: 'It may do everything in the new workspace. Sign in with it to look into it.',
              rootKey,
            })
            loaded.reload()
          }}
          onClose={close}
        />
      )}
      {open?.what === 'rename' && (
        <NameDialog
          title={`Rename ${open.row.name}`}
          button="Save"
          name={open.row.name}
          method="workspaces.updateWorkspace"
          inputOf={(name) => ({ workspaceId: open.row.id, name })}
          run={async (input) => {
            await ask('workspaces.updateWorkspace', input)
            loaded.reload()
          }}
          onClose={close}
        />
      )}
      {open?.what === 'rootKey' && (
        <NameDialog
          title={`New root key for ${open.row.name}`}
          button="Create root key"
          name="given by the operator"
          method="rootKeys.createRootKey"
          inputOf={(name) => ({ workspaceId: open.row.id, name, permissions: ['*'] })}
          run={async (input) => {
            const { rootKey } = await ask('rootKeys.createRootKey', input)
            setMade({ about: `It may do everything in ${open.row.name}.`, rootKey })
          }}
          onClose={close}
        />
      )}
      {open?.what === 'disable' && (
        <Confirm
          title="Disable this workspace?"
          button="Disable workspace"
          typed={open.row.name}
          run={async () => {
            await ask('workspaces.updateWorkspace', { workspaceId: open.row.id, enabled: false })
            loaded.reload()
          }}
          onClose={close}
        >
          <p>
            Every key and every root key of {open.row.name} is refused from the next call on, until you enable
            it again.
          </p>
        </Confirm>
      )}
      {made !== null && (
        <SecretDialog
          title="The new root key"
          secret={made.rootKey}
          fileName="root-key.txt"
          about={made.about}
          onClose={() => setMade(null)}
        />
      )}
    </>
  )
}

function NameDialog({
  title,
  button,
  name: before = '',
  method,
  inputOf,
  run,
  onClose,
}: {
  title: string
  button: string
  name?: string
  method: string
  inputOf: (name: string) => object
  run: (input: object) => Promise<void>
  onClose: () => void
}) {
  const [name, setName] = useState(before)
  const input = inputOf(name.trim())
  return (
    <FormDialog title={title} button={button} run={() => run(input)} onClose={onClose}>
      <Field label="Name" value={name} onInput={setName} required maxLength={256} />
      <CallText isFolded method={method} input={input} />
    </FormDialog>
  )
}
