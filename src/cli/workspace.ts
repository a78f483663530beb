import type { Arguments, Command } from './arguments.ts'
import { quoted } from './arguments.ts'
import type { CreateWorkspaceReply, ListWorkspacesReply } from './replies.ts'
import { MAX_ITEMS, requireChange } from './shared-options.ts'
import { tableText, timeText, yesOrNo } from './text.ts'
import { UsageError } from './usage-error.ts'

export const workspaceCommands: Command[] = [
  {
    name: 'workspace list',
    about: 'list workspaces (operator root key only)',
    options: MAX_ITEMS,
    example: 'workspace list',
    async run(given) {
      const client = await given.client()
      const workspaces = await client.list<ListWorkspacesReply['workspaces'][number]>(
        'workspaces.listWorkspaces',
        'workspaces',
        {},
        given.whole('max', 1),
      )
      const rows = workspaces.map(({ id, name, enabled, createdAt, bounds = {} }) => [
        id,
        name,
        yesOrNo(enabled),
        timeText(createdAt),
        Object.entries(bounds)
          .map(([bound, value]) => `${bound}=${value}`)
          .join(','),
      ])
      given.print(tableText(['id', 'name', 'enabled', 'created', 'own bounds'], rows), workspaces)
    },
  },
  {
    name: 'workspace create',
    about: 'create a workspace and its first root key (operator root key only)',
    arguments: { name: 'display name, 3 to 256 characters' },
    options: { name: { value: '<text>', about: 'the same as <name>', standsFor: 'name' } },
    example: 'workspace create acme',
    async run(given) {
      const client = await given.client()
      const body = { name: given.argument('name') }
      const reply = await client.post<CreateWorkspaceReply>('workspaces.createWorkspace', body)
      given.print(`${reply.workspaceId}\nroot key: ${reply.rootKey}`, reply)
    },
  },
  {
    name: 'workspace update',
    about: 'change a workspace; fields without an option stay as they are (operator root key only)',
    arguments: { 'workspace id': 'id of the workspace, from workspace create or workspace list' },
    options: {
      name: { value: '<text>', about: 'display name' },
      enable: { value: null, about: 'accept its keys and root keys again' },
      disable: { value: null, about: 'refuse all of its keys and root keys' },
      bound: {
        value: '<name>=<n>',
        about: 'replaces its own bounds; empty: the bounds of the server',
        isList: true,
      },
    },
    example: 'workspace update ws_1234 --bound keys=50000',
    async run(given) {
      const body = {
        workspaceId: given.argument('workspace id'),
        name: given.text('name'),
        enabled: given.enabled(),
        bounds: readBounds(given),
      }
      requireChange(body, ['workspaceId'])
      await (await given.client()).post('workspaces.updateWorkspace', body)
      given.print('changed', {})
    },
  },
]

/** Passes names of bounds on unchecked: the server knows them. @throws UsageError */
function readBounds(given: Arguments): Record<string, number> | null | undefined {
  const texts = given.listOrNone('bound')
  if (texts === undefined) return undefined
  if (texts.length === 0) return null
  return Object.fromEntries(
    texts.map((text) => {
      const [, name = '', value = ''] = /^([A-Za-z]+)=(\d+)$/.exec(text) ?? []
      if (name === '')
        throw new UsageError(`--bound is ${quoted(text)}; it must be a name and a number such as keys=50000`)
      return [name, Number(value)]
    }),
  )
}
