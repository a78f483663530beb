import { useState } from 'preact/hooks'
import type { ListKeysOfAllApisReply } from '../../../doors/v1/keys/schema.ts'
import { useData } from '../data.ts'
import { exact } from '../format.ts'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { Panel } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { ask, lacking, within, workspaceId } from '../session.ts'

type Row = ListKeysOfAllApisReply['keys'][number]

/** How keys get a role or permission, and lose it. */
type Linking = {
  add: (keyId: string) => Promise<unknown>
  remove: (keyId: string) => Promise<unknown>
  addRight: string
  removeRight: string
}

/** Keys of all APIs that belong to an identity, or have a role or a permission. */
export function KeysThatHold({
  title,
  held,
  empty,
  linking = null,
}: {
  title: string
  held: { identityId: string } | { roleId: string } | { permissionId: string }
  empty: string
  linking?: Linking | null
}) {
  const [cursor, setCursor] = useState<string | null>(null)
  const loaded = useData(`keys ${workspaceId.value} ${JSON.stringify(held)} ${cursor}`, (options) =>
    ask('keys.listKeys', { ...held, limit: 20, cursor }, options),
  )
  return (
    <Panel title={title} loaded={loaded} isWide>
      {({ keys, total, cursor: next }) => (
        <>
          {keys.length === 0 ? (
            <p class="empty">{empty}</p>
          ) : (
            <Table<Row>
              label={title}
              hasActions={linking !== null}
              rows={keys}
              titleOf={({ name, start }) => name ?? `${start}…`}
              keyOf={({ id }) => id}
              columns={[
                {
                  name: 'Key',
                  cell: ({ id, name, start }) => (
                    <>
                      <a href={within(`keys/${id}`)}>{name ?? `${start}…`}</a>{' '}
                      {name !== undefined && <code class="secondary">{start}…</code>}
                    </>
                  ),
                },
                { name: 'State', cell: (row) => stateOf(row) },
                { name: 'API', isMinor: true, cell: ({ apiId }) => <code>{apiId}</code> },
                ...(linking === null
                  ? []
                  : [
                      {
                        name: 'Take away',
                        cell: ({ id }: Row) => (
                          <Act
                            name="Take away"
                            lacking={lacking(linking.removeRight)}
                            run={() => linking.remove(id)}
                            onDone={loaded.reload}
                          />
                        ),
                      },
                    ]),
              ]}
            />
          )}
          {(next !== undefined || cursor !== null) && (
            <nav class="pager" aria-label={`Pages of ${title.toLowerCase()}`}>
              <p class="secondary">
                {exact(total)}
                {total === 1000 && ' or more'} in all
              </p>
              {cursor !== null && <Button onClick={() => setCursor(null)}>First page</Button>}
              {next !== undefined && <Button onClick={() => setCursor(next)}>Next</Button>}
            </nav>
          )}
          {linking !== null && <Assign linking={linking} onDone={loaded.reload} />}
        </>
      )}
    </Panel>
  )
}

const stateOf = ({ enabled, expires }: Row) =>
  !enabled ? 'Disabled' : expires !== undefined && expires <= Date.now() ? 'Expired' : 'Active'

function Assign({ linking, onDone }: { linking: Linking; onDone: () => void }) {
  const [keyId, setKeyId] = useState('')
  const { start, isBusy, failed } = useAction(async () => {
    await linking.add(keyId.trim())
    setKeyId('')
    onDone()
  })
  return (
    <form
      class="line apart"
      onSubmit={(event) => {
        event.preventDefault()
        void start()
      }}
    >
      <Field
        label="Give it to a key"
        value={keyId}
        onInput={setKeyId}
        placeholder="key_…"
        isMono
        required
        maxLength={256}
      />
      <Button type="submit" isBusy={isBusy} lacking={lacking(linking.addRight)}>
        Assign
      </Button>
      {failed !== null && <Failure failed={failed} />}
    </form>
  )
}

/** A small action in a row, with its failure beside it. */
export function Act({
  name,
  lacking: missing,
  run,
  onDone,
}: {
  name: string
  lacking: string | null
  run: () => Promise<unknown>
  onDone: () => void
}) {
  const { start, isBusy, failed } = useAction(async () => {
    await run()
    onDone()
  })
  return (
    <>
      <Button kind="quiet" lacking={missing} isBusy={isBusy} onClick={() => void start()}>
        {name}
      </Button>
      {failed !== null && (
        <span class="hint bad" role="alert">
          {failed.message}
        </span>
      )}
    </>
  )
}
