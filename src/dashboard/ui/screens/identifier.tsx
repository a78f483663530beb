import { useState } from 'preact/hooks'
import { useData } from '../data.ts'
import { exact } from '../format.ts'
import { match } from '../match.ts'
import { Button } from '../parts/controls.tsx'
import { Icon } from '../parts/icons.tsx'
import { identifierOfPath } from '../parts/identifier-path.ts'
import {
  EventTable,
  namespacePath,
  OverrideDialog,
  shown,
  span,
  WatchButton,
  Windows,
  whyOf,
} from '../parts/limits.tsx'
import { Missing } from '../parts/missing.tsx'
import { Panel } from '../parts/panel.tsx'
import { OfServer } from '../parts/servers.tsx'
import { useTitle } from '../parts/title.tsx'
import { place } from '../route.ts'
import { ask, lacking, within, workspaceId } from '../session.ts'
import { Decisions } from './limits.tsx'
import { DeleteOverride } from './namespace.tsx'

/** One identifier in a namespace: its windows now, its override, its hours, its last refusals. */
export function IdentifierScreen() {
  const { namespace: namespaceId = '', identifier: part = '' } =
    match('/dashboard/w/:workspace/limits/:namespace/:identifier', place.value.path) ?? {}
  const identifier = identifierOfPath(part)
  const key = `${workspaceId.value} ${namespaceId} ${identifier}`
  const [dialog, setDialog] = useState<'override' | 'delete' | null>(null)
  const windows = useData(
    `windows ${key}`,
    (options) => ask('ratelimits.getWindows', { namespaceId, identifier }, options),
    { everyMs: 2_000 },
  )
  const hours = useData(
    `hours ${key}`,
    (options) =>
      ask(
        'analytics.getRatelimits',
        { namespaceId, identifier: [identifier], groupBy: ['hour'], start: Date.now() - 47 * 3_600_000 },
        options,
      ),
    { everyMs: 10_000 },
  )
  const refusals = useData(
    `refusals ${key}`,
    (options) => ask('events.listRecent', { namespaceId, identifier, limit: 10 }, options),
    { everyMs: 2_000 },
  )
  const name = windows.data?.namespace.name ?? namespaceId
  const heading = useTitle(shown(identifier), `${shown(identifier)} in ${name}`)
  const override = windows.data?.override
  const first = windows.data?.windows[0]
  if (windows.data === null && windows.failed?.code === 'NOT_FOUND')
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
        <a href={within('limits')}>Limits</a> / <a href={namespacePath(namespaceId)}>{name}</a>
      </p>
      <div class="head">
        {heading}
        <a class="button plain" href={whyOf({ namespace: namespaceId, identifier })}>
          <Icon name="why" />
          <span>Why refused?</span>
        </a>
        <WatchButton key={key} subject={{ namespaceId, identifier }} />
        <Button
          kind="main"
          icon="edit"
          lacking={lacking('ratelimit.*.set_override')}
          onClick={() => setDialog('override')}
        >
          Override…
        </Button>
      </div>
      <div class="panels">
        <Panel title="Windows now" loaded={windows} isWide>
          {(data) => <Windows windows={data.windows} />}
        </Panel>
        <Panel title="Override" loaded={windows}>
          {() =>
            override === undefined ? (
              <p class="empty">None: it gets the limit that calls ask for.</p>
            ) : (
              <div class="stack">
                <p>
                  {exact(override.limit)} per {span(override.duration)}
                  {override.identifier !== identifier && (
                    <>
                      , from the pattern <code>{override.identifier}</code>
                    </>
                  )}
                </p>
                {override.identifier === identifier && (
                  <div>
                    <Button
                      kind="danger"
                      icon="trash"
                      lacking={lacking('ratelimit.*.delete_override')}
                      onClick={() => setDialog('delete')}
                    >
                      Delete…
                    </Button>
                  </div>
                )}
              </div>
            )
          }
        </Panel>
        <Panel title="Last refusals" loaded={refusals}>
          {({ events, server }) => (
            <>
              {events.length === 0 ? (
                <p class="empty">None is remembered since this server started.</p>
              ) : (
                <EventTable events={events} label="Last refusals" isOfOne />
              )}
              <p class="secondary memory">
                From the memory of <OfServer id={server} />.
              </p>
            </>
          )}
        </Panel>
        <Panel title="Last 48 hours" loaded={hours} isWide>
          {(points) => <Decisions points={points} file="identifier.csv" />}
        </Panel>
      </div>
      {dialog === 'override' && (
        <OverrideDialog
          namespaceId={namespaceId}
          identifier={identifier}
          now={first ?? null}
          onClose={() => setDialog(null)}
          onDone={windows.reload}
        />
      )}
      {dialog === 'delete' && (
        <DeleteOverride
          namespaceId={namespaceId}
          identifier={identifier}
          onClose={() => setDialog(null)}
          onDone={windows.reload}
        />
      )}
    </>
  )
}
