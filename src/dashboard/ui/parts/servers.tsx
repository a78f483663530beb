import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import type { AskServersReply } from '../../../doors/v1/server-answers.ts'
import { useData } from '../data.ts'
import { counted, exact } from '../format.ts'
import { ask, own, session } from '../session.ts'
import { Button } from './controls.tsx'
import { Icon } from './icons.tsx'

/** Names of hosts by the ids of their servers, which operators may know. */
const hosts = signal<ReadonlyMap<string, string>>(new Map())
const asked = new Set<string>()

async function learnHost(id: string): Promise<void> {
  if (asked.has(id)) return
  asked.add(id)
  const { servers } = await ask('server.listServers', {}, { isRefresh: true })
  hosts.value = new Map(servers.map((each) => [each.id, each.host]))
}

/** Whose memory is shown: others remember their own. */
export function OfServer({ id }: { id: string }) {
  const isOperator = own.value?.isOperator === true
  useEffect(() => {
    if (isOperator) learnHost(id).catch(() => {}) // the id is shown instead
  }, [isOperator, id])
  const host = hosts.value.get(id)
  const servers = session.value?.servers ?? 1
  return (
    <span class="of-server">
      {host !== undefined && `${host}, `}
      <code>{id}</code>
      {servers > 1 && `, one of ${servers} servers: the others remember their own`}
    </span>
  )
}

/**
 * After a change: what each other server on the database answers about the key. Nothing where there are none. It stands in an
 * element with `role="status"`, so that the answers are read out when they come.
 * @param props.saysOwn It also says what this server answers; else the text before it does.
 */
export function OtherServers({
  of,
  saysOwn = false,
}: {
  of: { keyId: string } | { rootKeyId: string }
  saysOwn?: boolean
}) {
  const known = (session.value?.servers ?? 1) - 1
  const asked = useData(`servers of ${JSON.stringify(of)}`, ({ signal }) =>
    'keyId' in of
      ? ask('keys.askServers', of, { isRefresh: true, signal })
      : ask('rootKeys.askServers', of, { isRefresh: true, signal }),
  )
  if (asked.data === null) {
    if (known < 1) return null
    return <p>{asked.failed === null ? `Asking the ${counted(known, 'other server')}…` : bound(known)}</p>
  }
  const { servers } = asked.data
  const own = servers.find(({ isThis }) => isThis)
  const isAccepted = own?.code === 'VALID'
  const others = servers.filter(({ isThis }) => !isThis)
  const agrees = ({ code }: Server) => code !== undefined && (code === 'VALID') === isAccepted
  const agreeing = others.filter(agrees).length
  const verb = isAccepted ? 'accept' : 'refuse'
  return (
    <>
      {saysOwn && own !== undefined && (
        <p>
          This server <Answer server={own} isAccepted={isAccepted} />.
        </p>
      )}
      {others.length > 0 && (
        <>
          <p>
            {!saysOwn && 'That is this server. '}
            {exact(agreeing)} of {counted(others.length, 'other server')} {agreeing === 1 ? `${verb}s` : verb}{' '}
            it:
          </p>
          <ul class="answers">
            {others.map((other) => (
              <li key={other.id} class={agrees(other) ? '' : 'warn'}>
                <Icon name={agrees(other) ? 'check' : 'warning'} />
                <span>
                  {other.host !== undefined && `${other.host}, `}
                  <code>{other.id}</code> <Answer server={other} isAccepted={isAccepted} />
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {agreeing < others.length && (
        <div>
          <Button icon="refresh" onClick={asked.reload}>
            Ask the other servers again
          </Button>
        </div>
      )}
    </>
  )
}

type Server = AskServersReply['servers'][number]

/** @param props.isAccepted Whether the server that was asked first accepts the key. */
function Answer({ server: { code, afterMs }, isAccepted }: { server: Server; isAccepted: boolean }) {
  if (code === undefined)
    return (
      <>
        has not answered. It may still {isAccepted ? 'refuse' : 'accept'} the key for up to 10 s, longer only
        while it cannot reach the database.
      </>
    )
  const doesAccept = code === 'VALID'
  return (
    <>
      {doesAccept !== isAccepted && 'still '}
      {doesAccept ? 'accepts' : 'refuses'} it, <code>{code}</code>
      {afterMs !== undefined && `, answered in ${exact(Math.max(1, afterMs))} ms`}
    </>
  )
}

/** What holds where the others cannot be asked. */
const bound = (others: number): string =>
  `That is this server; ${counted(others, 'other')} on the database ${others === 1 ? 'hears' : 'hear'} of it by notification, usually within 0.1 s, and within 10 s after a lost connection.`
