import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { counted } from '../format.ts'
import { ask, own, session } from '../session.ts'

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

/** After a change: what the check of one server says of the others. Nothing where there are none. */
export function othersHear(): string {
  const others = (session.value?.servers ?? 1) - 1
  return others < 1
    ? ''
    : ` That is this server; ${counted(others, 'other')} on the database ${others === 1 ? 'hears' : 'hear'} of it by notification, usually within 0.1 s, and within 10 s after a lost connection.`
}
