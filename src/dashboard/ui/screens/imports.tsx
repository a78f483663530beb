import { useState } from 'preact/hooks'
import type { ListImportsReply } from '../../../doors/v1/migrations/schema.ts'
import { useData } from '../data.ts'
import { counted, dayAndTime, exact, utc } from '../format.ts'
import { Button, Failure, useAction } from '../parts/controls.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { ImportFile } from '../parts/import-file.tsx'
import { Panel } from '../parts/panel.tsx'
import { Pager, Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { place } from '../route.ts'
import { ask, lacking, workspaceId } from '../session.ts'

type Row = ListImportsReply['imports'][number]

/** Keys from a file, and enqueued keys: how many wait, and those that were given up, to try again or to remove. */
export function Imports() {
  const heading = useTitle('Imports')
  const { query } = place.value
  const loaded = useData(
    `imports ${workspaceId.value} ${query.get('after')}`,
    (options) => ask('migrations.listImports', { limit: 50, cursor: query.get('after') }, options),
    { everyMs: 10_000 },
  )
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const [isDiscarding, setDiscarding] = useState(false)
  const rows = loaded.data?.imports ?? []
  // What is gone, or on another page, is not acted on.
  const importIds = rows.map(({ id }) => id).filter((id) => chosen.has(id))
  const missing = lacking('api.*.create_key') ?? (importIds.length === 0 ? 'choose some first' : null)
  const done = () => {
    setChosen(new Set())
    loaded.reload()
  }
  const retry = useAction(async () => {
    await ask('migrations.retryImports', { importIds })
    done()
  })
  const toggle = (id: string) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    setChosen(next)
  }
  return (
    <>
      <div class="head">{heading}</div>
      <p class="secondary">
        Keys of another system, by their hashes or texts. From a file they are made at once; programs may also
        enqueue them with <code>migrations.enqueueKeys</code>.
      </p>
      <ImportFile onDone={loaded.reload} />
      <Panel title="Queue" loaded={loaded}>
        {({ waiting, failed }) => (
          <dl class="figures">
            <div>
              <dt>waiting</dt>
              <dd>{upTo(waiting)}</dd>
            </div>
            <div>
              <dt>given up</dt>
              <dd>{upTo(failed)}</dd>
            </div>
          </dl>
        )}
      </Panel>
      <Panel title="Given up" loaded={loaded}>
        {({ imports, cursor }) =>
          imports.length === 0 ? (
            <p class="empty">No import was given up. One is, after ten retries that failed.</p>
          ) : (
            <>
              <div class="line">
                <Button onClick={() => setChosen(new Set(imports.map(({ id }) => id)))}>
                  Choose all shown
                </Button>
                <Button
                  icon="refresh"
                  lacking={missing}
                  isBusy={retry.isBusy}
                  onClick={() => void retry.start()}
                >
                  Try again
                </Button>
                <Button kind="danger" lacking={missing} onClick={() => setDiscarding(true)}>
                  Discard…
                </Button>
                <p class="secondary" role="status">
                  {importIds.length} chosen
                </p>
              </div>
              {retry.failed !== null && <Failure failed={retry.failed} />}
              <Table<Row>
                label="Imports that were given up"
                file="failed-imports.csv"
                rows={imports}
                keyOf={({ id }) => id}
                columns={[
                  {
                    name: 'Key',
                    cell: ({ id, name, start, keyId }) => (
                      <label class="check">
                        <input type="checkbox" checked={chosen.has(id)} onChange={() => toggle(id)} />
                        <span>
                          {name ?? keyId} {start !== '' && <code class="secondary">{start}…</code>}
                        </span>
                      </label>
                    ),
                    text: ({ name, keyId }) => name ?? keyId,
                  },
                  {
                    name: 'Reason',
                    cell: ({ reason }) => <span class="reason">{reason}</span>,
                    text: ({ reason }) => reason,
                  },
                  {
                    name: 'Migration',
                    isMinor: true,
                    cell: ({ migrationId }) => migrationId,
                    text: ({ migrationId }) => migrationId,
                  },
                  {
                    name: 'API',
                    isMinor: true,
                    cell: ({ apiId }) => <code>{apiId}</code>,
                    text: ({ apiId }) => apiId,
                  },
                  {
                    name: 'Given up',
                    isMinor: true,
                    cell: ({ failedAt }) => <span title={utc(failedAt)}>{dayAndTime(failedAt)}</span>,
                    text: ({ failedAt }) => utc(failedAt),
                  },
                ]}
              />
              <Pager cursor={cursor} />
            </>
          )
        }
      </Panel>
      {isDiscarding && (
        <Confirm
          title="Discard these imports?"
          button="Discard"
          typed={null}
          run={async () => {
            await ask('migrations.discardImports', { importIds })
            done()
          }}
          onClose={() => setDiscarding(false)}
        >
          <p>
            {counted(importIds.length, 'key')} will not be imported. Enqueue them again if you need them
            later.
          </p>
        </Confirm>
      )}
    </>
  )
}

const upTo = (count: number) => (count === 10_000 ? `${exact(count)} or more` : exact(count))
