import { durationText } from '../lib/written-time.ts'
import type { Arguments, Command } from './arguments.ts'
import { CallError, type Client } from './client.ts'
import type { GetOverrideReply, ListNamespacesReply, ListOverridesReply } from './replies.ts'
import { IS_ID, isConfirmed, MAX_ITEMS, requireChange, YES } from './shared-options.ts'
import { fieldsText, tableText } from './text.ts'

type Namespace = ListNamespacesReply['namespaces'][number]

const NAMESPACE = { namespace: 'name of the namespace' }
const OVERRIDE = { ...NAMESPACE, identifier: 'identifier or pattern of the override, exactly as it was set' }
const BY_ID = { id: { ...IS_ID('').id, about: '<namespace> is an id, not a name' } }

const IN_FLEET = 'Both options take effect on servers with TOLLGATE_FLEET.'
const SHARING = {
  scope: {
    value: '<fleet|local>',
    about: 'fleet: one count for all servers; local: one at each; empty: as TOLLGATE_FLEET says',
  },
  outage: {
    value: '<rule>',
    about:
      'while the engine of shared limits is away: share, refuse or open; empty: as TOLLGATE_FLEET_OUTAGE says',
  },
}

export const namespaceCommands: Command[] = [
  {
    name: 'namespace list',
    about: 'list namespaces, which are groups of rate limits',
    options: MAX_ITEMS,
    example: 'namespace list',
    async run(given) {
      const namespaces = await listed(await given.client(), given.whole('max', 1))
      const rows = namespaces.map(({ id, name, scope, outage }) => [id, name, scope ?? '', outage ?? ''])
      given.print(tableText(['id', 'name', 'scope', 'outage'], rows), namespaces)
    },
  },
  {
    name: 'namespace create',
    about: 'create a namespace',
    arguments: NAMESPACE,
    options: SHARING,
    example: 'namespace create sms',
    async run(given) {
      const client = await given.client()
      const body = { name: given.argument('namespace'), ...sharingOf(given) }
      const reply = await client.post<{ namespaceId: string }>('ratelimits.createNamespace', body)
      given.print(reply.namespaceId, reply)
    },
  },
  {
    name: 'namespace update',
    about: 'change how several servers share the limits of a namespace; fields without an option stay',
    arguments: NAMESPACE,
    options: { ...BY_ID, ...SHARING },
    notes: `${IN_FLEET} A window that is open when the scope changes may begin anew: once for all servers, or once at each.`,
    example: 'namespace update emails --scope local',
    async run(given) {
      const name = given.argument('namespace')
      const change = sharingOf(given)
      requireChange(change, [])
      const client = await given.client()
      const namespaceId = given.has('id') ? name : await idOf(client, name)
      await client.post('ratelimits.updateNamespace', { namespaceId, ...change })
      given.print('changed', {})
    },
  },
  {
    name: 'namespace delete',
    about: 'delete a namespace with its overrides and counters',
    arguments: NAMESPACE,
    options: { ...BY_ID, ...YES },
    example: 'namespace delete emails --yes',
    async run(given) {
      const name = given.argument('namespace')
      if (!isConfirmed(given, `Delete namespace ${name} with its overrides?`, 'nothing was deleted')) return 1
      const client = await given.client()
      const namespaceId = given.has('id') ? name : await idOf(client, name)
      await client.post('ratelimits.deleteNamespace', { namespaceId })
      given.print('deleted', {})
      return 0
    },
  },
  {
    name: 'namespace override list',
    about: 'list the overrides of a namespace',
    arguments: NAMESPACE,
    options: { ...BY_ID, ...MAX_ITEMS },
    example: 'namespace override list emails',
    async run(given) {
      const client = await given.client()
      const overrides = await client.list<ListOverridesReply['overrides'][number]>(
        'ratelimits.listOverrides',
        'overrides',
        nameOf(given),
        given.whole('max', 1),
      )
      const rows = overrides.map(({ id, identifier, limit, duration }) => [
        id,
        identifier,
        limit,
        durationText(duration),
      ])
      given.print(tableText(['id', 'identifier', 'limit', 'duration'], rows), overrides)
    },
  },
  {
    name: 'namespace override get',
    about: 'show one override',
    arguments: OVERRIDE,
    options: BY_ID,
    example: 'namespace override get emails user_123',
    async run(given) {
      const client = await given.client()
      const query = { ...nameOf(given), identifier: given.argument('identifier') }
      const override = await client.get<GetOverrideReply>('ratelimits.getOverride', query)
      const { id, identifier, limit, duration } = override
      given.print(fieldsText({ id, identifier, limit, duration: durationText(duration) }), override)
    },
  },
  {
    name: 'namespace override set',
    about: 'set an override: another limit for an identifier, whatever the call asks for',
    arguments: {
      ...NAMESPACE,
      identifier: 'identifier that the override applies to, or a pattern: * matches any characters',
    },
    options: {
      ...BY_ID,
      limit: { value: '<n>', about: 'tokens allowed in a window; 0 refuses every call', isRequired: true },
      duration: { value: '<duration>', about: 'length of the window', isRequired: true },
    },
    example: `namespace override set emails 'user_*' --limit 10 --duration 1m`,
    async run(given) {
      const client = await given.client()
      const reply = await client.post<{ overrideId: string }>('ratelimits.setOverride', {
        ...nameOf(given),
        identifier: given.argument('identifier'),
        limit: given.whole('limit'),
        duration: given.duration('duration'),
      })
      given.print(reply.overrideId, reply)
    },
  },
  {
    name: 'namespace override delete',
    about: 'delete an override: the limit in the call applies again',
    arguments: OVERRIDE,
    options: BY_ID,
    example: 'namespace override delete emails user_123',
    async run(given) {
      const client = await given.client()
      const body = { ...nameOf(given), identifier: given.argument('identifier') }
      await client.post('ratelimits.deleteOverride', body)
      given.print('deleted', {})
    },
  },
]

function nameOf(given: Arguments): { namespaceId: string } | { namespaceName: string } {
  const name = given.argument('namespace')
  return given.has('id') ? { namespaceId: name } : { namespaceName: name }
}

/** Passes values on unchecked: the server knows them. */
const sharingOf = (given: Arguments) => ({
  scope: given.textOrNull('scope'),
  outage: given.textOrNull('outage'),
})

const listed = (client: Client, max?: number) =>
  client.list<Namespace>('ratelimits.listNamespaces', 'namespaces', {}, max)

/** Deleting needs an id, people know names. @throws CallError */
async function idOf(client: Client, name: string): Promise<string> {
  const found = (await listed(client)).find((namespace) => namespace.name === name)
  if (found !== undefined) return found.id
  throw new CallError('there is no namespace with this name', {
    code: 'NOT_FOUND',
    hint: 'tollgate namespace list shows what exists; with --id, the argument is an id',
  })
}
