import type { Command } from './arguments.ts'
import { Client } from './client.ts'
import { tableText, timeText } from './text.ts'

type Workspace = { id: string; name: string; enabled: boolean; createdAt: number }

export const workspaceCommands: Command[] = [
  {
    name: 'workspace create',
    about: 'make a workspace and its first root key (operator root key only)',
    options: { name: { value: '<text>', about: 'for people', isRequired: true } },
    async run(given) {
      const reply = await new Client().post<{ workspaceId: string; rootKeyId: string; rootKey: string }>(
        'workspaces.createWorkspace',
        { name: given.required('name') },
      )
      given.print(`${reply.workspaceId}\nroot key: ${reply.rootKey}`, reply)
    },
  },
  {
    name: 'workspace list',
    about: 'list workspaces (operator root key only)',
    async run(given) {
      const workspaces = await new Client().list<Workspace>('workspaces.listWorkspaces', 'workspaces')
      const rows = workspaces.map((each) => [
        each.id,
        each.name,
        each.enabled ? 'yes' : 'no',
        timeText(each.createdAt),
      ])
      given.print(tableText(['id', 'name', 'enabled', 'made'], rows), workspaces)
    },
  },
]
