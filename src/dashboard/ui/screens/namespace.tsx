import { useState } from 'preact/hooks'
import type { GetWindowsReply, ListOverridesReply } from '../../../doors/v1/ratelimits/schema.ts'
import { useData } from '../data.ts'
import { exact } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { match } from '../match.ts'
import { CallText } from '../parts/call.tsx'
import { Button, Field, useAction } from '../parts/controls.tsx'
import { Confirm, FormDialog } from '../parts/dialog.tsx'
import { Choice } from '../parts/form.tsx'
import { identifierPath, NearLimit, OverrideDialog, shown, span, Windows } from '../parts/limits.tsx'
import { Missing } from '../parts/missing.tsx'
import { Panel } from '../parts/panel.tsx'
import { RangeSelect, useRange } from '../parts/range.tsx'
import { CsvButton } from '../parts/save-csv.tsx'
import { useTitle } from '../parts/title.tsx'
import { go, place, setQuery } from '../route.ts'
import { ask, lacking, within, workspaceId } from '../session.ts'
import { Decisions, namespaceOf } from './limits.tsx'

/** One namespace: its identifiers and its overrides. */
export function NamespaceScreen() {
  const { namespace: namespaceId = '' } =
    match('/dashboard/w/:workspace/limits/:namespace', place.value.path) ?? {}
  const range = useRange()
  const after = place.value.query.get('after') ?? ''
  const key = `${workspaceId.value} ${namespaceId}`
  const [dialog, setDialog] = useState<'override' | 'servers' | 'delete' | null>(null)
  const named = useData(`name ${key}`, ({ signal }) => namespaceOf(namespaceId, { signal }))
  const name = named.data?.name ?? namespaceId
  const heading = useTitle(name, `${name}, limits`)
  const by = { namespaceId, start: range.start() }
  const hours = useData(
    `hours ${key} ${range.value}`,
    (options) => ask('analytics.getRatelimits', { ...by, groupBy: ['hour'] }, options),
    { everyMs: 10_000 },
  )
  const identifiers = useData(
    `identifiers ${key} ${range.value}`,
    (options) =>
      ask(
        'analytics.getRatelimits',
        { ...by, groupBy: ['identifier'], orderBy: 'total', order: 'desc', limit: 50 },
        options,
      ),
    { everyMs: 10_000 },
  )
  const near = useData(
    `near ${key}`,
    (options) => ask('ratelimits.listNearLimit', { namespaceId }, options),
    { everyMs: 2_000 },
  )
  const overrides = useData(`overrides ${key} ${after}`, (options) =>
    ask(
      'ratelimits.listOverrides',
      { namespaceId, limit: 50, ...(after !== '' && { cursor: after }) },
      options,
    ),
  )
  const missing = lacking('ratelimit.*.set_override')
  useShortcuts({ c: () => missing === null && setDialog('override') })
  if ([near, overrides].some(({ data, failed }) => data === null && failed?.code === 'NOT_FOUND'))
    return (
      <>
        <div class="head">{heading}</div>
        <Missing kind="namespace" id={namespaceId}>
          <a href={within('limits')}>All namespaces</a>
        </Missing>
      </>
    )
  return (
    <>
      <p class="crumbs">
        <a href={within('limits')}>Limits</a>
      </p>
      <div class="head">
        {heading}
        <RangeSelect range={range} />
        <Button
          lacking={
            lacking('ratelimit.*.update_namespace') ??
            (named.data === null ? 'the namespace cannot be read' : null)
          }
          onClick={() => setDialog('servers')}
        >
          Several servers…
        </Button>
        <Button
          kind="danger"
          icon="trash"
          lacking={lacking('ratelimit.*.delete_namespace')}
          onClick={() => setDialog('delete')}
        >
          Delete…
        </Button>
      </div>
      <div class="panels">
        <Panel title="Decisions" loaded={hours} isWide>
          {(points) => <Decisions points={points} file={`${namespaceId}-${range.value}.csv`} />}
        </Panel>
        <Panel title="Identifiers with the most calls" loaded={identifiers}>
          {(points) => {
            const rows = points.filter(({ total }) => total > 0)
            return rows.length === 0 ? (
              <p class="empty">No identifier was limited in this time.</p>
            ) : (
              <>
                <div class="scroll-x">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Identifier</th>
                        <th scope="col" class="number">
                          Passed
                        </th>
                        <th scope="col" class="number">
                          Refused
                        </th>
                      </tr>
                    </thead>
                    <tbody>
                      {rows.map(({ identifier, passed, denied }) => (
                        <tr key={identifier ?? ' '}>
                          <th scope="row" class="wrap">
                            {identifier === undefined ? (
                              <span class="secondary">all others</span>
                            ) : (
                              <a href={identifierPath(namespaceId, identifier)}>{shown(identifier)}</a>
                            )}
                          </th>
                          <td class="number">{exact(passed)}</td>
                          <td class="number">{exact(denied)}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
                <div class="below">
                  <CsvButton
                    file={`${namespaceId}-identifiers.csv`}
                    rows={[
                      ['identifier', 'passed', 'refused'],
                      ...rows.map(({ identifier, passed, denied }) => [
                        identifier ?? '(all others)',
                        String(passed),
                        String(denied),
                      ]),
                    ]}
                  />
                </div>
              </>
            )
          }}
        </Panel>
        <Panel title="Near their limit now" loaded={near}>
          {(data) => <NearLimit identifiers={data.identifiers} isOfOne />}
        </Panel>
        <Panel
          title="Overrides"
          loaded={overrides}
          actions={
            <Button icon="plus" lacking={missing} onClick={() => setDialog('override')}>
              Create override
            </Button>
          }
        >
          {(page) => (
            <Overrides
              page={page}
              namespaceId={namespaceId}
              isFirst={after === ''}
              onChange={overrides.reload}
            />
          )}
        </Panel>
        <Try namespaceId={namespaceId} />
      </div>
      {dialog === 'override' && (
        <OverrideDialog namespaceId={namespaceId} onClose={() => setDialog(null)} onDone={overrides.reload} />
      )}
      {dialog === 'servers' && named.data !== null && (
        <SeveralServers namespace={named.data} onClose={() => setDialog(null)} onDone={named.reload} />
      )}
      {dialog === 'delete' && (
        <DeleteNamespace
          namespaceId={namespaceId}
          name={name}
          calls={(hours.data ?? []).reduce((sum, { total }) => sum + total, 0)}
          onClose={() => setDialog(null)}
        />
      )}
    </>
  )
}

function Overrides({
  page: { overrides, total, cursor },
  namespaceId,
  isFirst,
  onChange,
}: {
  page: ListOverridesReply
  namespaceId: string
  isFirst: boolean
  onChange: () => void
}) {
  const [deleting, setDeleting] = useState<string | null>(null)
  if (total === 0) return <p class="empty">None: every identifier gets the limit that calls ask for.</p>
  return (
    <>
      <div class="scroll-x">
        <table>
          <thead>
            <tr>
              <th scope="col">Identifier</th>
              <th scope="col">Limit</th>
              <th scope="col">
                <span class="visually-hidden">Delete</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {overrides.map(({ id, identifier, limit, duration }) => (
              <tr key={id}>
                <th scope="row" class="wrap">
                  {identifier.includes('*') ? (
                    <code>{identifier}</code>
                  ) : (
                    <a href={identifierPath(namespaceId, identifier)}>{shown(identifier)}</a>
                  )}
                </th>
                <td>
                  {exact(limit)} per {span(duration)}
                </td>
                <td class="number">
                  <Button
                    kind="quiet"
                    lacking={lacking('ratelimit.*.delete_override')}
                    onClick={() => setDeleting(identifier)}
                  >
                    Delete…<span class="visually-hidden"> the override of {identifier}</span>
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="below">
        {!isFirst && (
          <Button onClick={() => setQuery({ after: null }, { replaces: false })}>First page</Button>
        )}
        {cursor !== undefined && (
          <Button onClick={() => setQuery({ after: cursor }, { replaces: false })}>Next page</Button>
        )}
        <span class="secondary">{exact(total)} in all</span>
      </div>
      {deleting !== null && (
        <DeleteOverride
          namespaceId={namespaceId}
          identifier={deleting}
          onClose={() => setDeleting(null)}
          onDone={onChange}
        />
      )}
    </>
  )
}

export function DeleteOverride({
  namespaceId,
  identifier,
  onClose,
  onDone,
}: {
  namespaceId: string
  identifier: string
  onClose: () => void
  onDone: () => void
}) {
  return (
    <Confirm
      title="Delete the override"
      button="Delete override"
      onClose={onClose}
      run={async () => {
        await ask('ratelimits.deleteOverride', { namespaceId, identifier })
        onDone()
      }}
    >
      <p>
        <b class="wrap">{shown(identifier)}</b> then gets the limit that calls ask for, or that of a pattern.
      </p>
    </Confirm>
  )
}

/** Asks for the name when it is in use. */
function DeleteNamespace({
  namespaceId,
  name,
  calls,
  onClose,
}: {
  namespaceId: string
  name: string
  calls: number
  onClose: () => void
}) {
  return (
    <Confirm
      title="Delete the namespace"
      button="Delete namespace"
      onClose={onClose}
      typed={calls === 0 ? null : name}
      run={async () => {
        await ask('ratelimits.deleteNamespace', { namespaceId })
        go(within('limits'))
      }}
    >
      <p>
        Its overrides go with it. Calls of the v1 API that name it create a new, empty one, where everybody
        starts at zero; calls of the v2 API are refused.
      </p>
      {calls > 0 && <p>It decided {exact(calls)} calls in the range shown.</p>}
    </Confirm>
  )
}

type Settings = Pick<GetWindowsReply['namespace'], 'scope' | 'outage'>

const SCOPES = [
  { value: '', name: 'As the servers are set' },
  { value: 'fleet', name: 'Count for all servers together' },
  { value: 'local', name: 'Count at each server for itself' },
] as const
const RULES = [
  { value: '', name: 'As the servers are set' },
  { value: 'share', name: 'Each server lets its part of the limit through' },
  { value: 'refuse', name: 'Calls fail' },
  { value: 'open', name: 'Each server counts as if alone' },
] as const

/** How servers share the limits of the namespace. */
function SeveralServers({
  namespace,
  onClose,
  onDone,
}: {
  namespace: GetWindowsReply['namespace']
  onClose: () => void
  onDone: () => void
}) {
  const [{ scope, outage }, setSettings] = useState<Settings>(namespace)
  const input = { namespaceId: namespace.id, scope, outage }
  return (
    <FormDialog
      title="Limits on several servers"
      button="Save"
      icon="check"
      lacking={scope === namespace.scope && outage === namespace.outage ? 'nothing is changed yet' : null}
      onClose={onClose}
      run={async () => {
        await ask('ratelimits.updateNamespace', input)
        onDone()
      }}
    >
      <p>
        Of effect on servers with <code>TOLLGATE_FLEET</code>. A window that is open when the first choice
        changes may begin anew, once.
      </p>
      <Choice
        label="Limits of this namespace"
        value={scope ?? ''}
        options={SCOPES}
        onChange={(value) => setSettings({ scope: value === '' ? null : value, outage })}
      />
      <Choice
        label="While the engine of shared limits is away"
        value={outage ?? ''}
        options={RULES}
        onChange={(value) => setSettings({ scope, outage: value === '' ? null : value })}
      />
      <CallText isFolded method="ratelimits.updateNamespace" input={input} />
    </FormDialog>
  )
}

/** Which override gets this identifier? */
function Try({ namespaceId }: { namespaceId: string }) {
  const [typed, setTyped] = useState('')
  const [asked, setAsked] = useState<string | null>(null)
  const [found, setFound] = useState<Awaited<ReturnType<typeof find>> | null>(null)
  const find = (identifier: string) => ask('ratelimits.getWindows', { namespaceId, identifier })
  const { start, isBusy, failed } = useAction(async () => {
    setFound(await find(typed))
    setAsked(typed)
  })
  return (
    <section class="panel" aria-labelledby="try">
      <header>
        <h2 id="try">Which limit gets this identifier?</h2>
      </header>
      <form
        class="line"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        <Field
          label="Identifier"
          value={typed}
          onInput={setTyped}
          maxLength={1024}
          error={failed?.message ?? null}
        />
        <Button type="submit" icon="search" isBusy={isBusy}>
          Look up
        </Button>
      </form>
      {found !== null && asked !== null && (
        <div class="stack found" role="status">
          <p>
            {found.override === undefined ? (
              <>No override: it gets what calls ask for.</>
            ) : (
              <>
                The override <code>{found.override.identifier}</code>: {exact(found.override.limit)} per{' '}
                {span(found.override.duration)}.
              </>
            )}{' '}
            <a href={identifierPath(namespaceId, asked)}>Open {shown(asked)}</a>
          </p>
          <Windows windows={found.windows} />
        </div>
      )}
    </section>
  )
}
