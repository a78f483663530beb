import type { Arguments, Command } from './arguments.ts'
import type { Client } from './client.ts'
import { CallError } from './client.ts'
import type { CreateRoleReply, ListRolesReply, RoleReply } from './replies.ts'
import { DESCRIPTION, IS_ID } from './shared-options.ts'
import { fieldsText, tableText } from './text.ts'
import { UsageError } from './usage-error.ts'

const NAME = { name: 'name of the role' }
const BY_ID = IS_ID('a name')

export const roleCommands: Command[] = [
  {
    name: 'role list',
    about: 'list roles, which are sets of permissions',
    example: 'role list',
    async run(given) {
      const roles = await listed(await given.client())
      const rows = roles.map(({ id, name, description }) => [id, name, description ?? ''])
      given.print(tableText(['id', 'name', 'description'], rows), roles)
    },
  },
  {
    name: 'role get',
    about: 'show one role',
    arguments: NAME,
    options: BY_ID,
    example: 'role get editor',
    async run(given) {
      const client = await given.client()
      const role = await client.get<RoleReply>('permissions.getRole', { roleId: await idOf(given, client) })
      const { id, name, description } = role
      given.print(fieldsText({ id, name, description }), role)
    },
  },
  {
    name: 'role create',
    about: 'create a role',
    arguments: { name: 'name of the role, 3 to 256 characters' },
    options: DESCRIPTION,
    example: 'role create reviewer',
    async run(given) {
      const client = await given.client()
      const body = { name: given.argument('name'), description: given.text('description') }
      const reply = await client.post<CreateRoleReply>('permissions.createRole', body)
      given.print(reply.roleId, reply)
    },
  },
  {
    name: 'role set-permissions',
    about: 'replace the permissions of a role',
    arguments: NAME,
    options: {
      ...BY_ID,
      permission: { value: '<slug>', about: 'slug of a permission; empty: none', isList: true },
      create: { value: null, about: 'create permissions that do not exist' },
    },
    example: 'role set-permissions editor --permission documents.read --permission documents.edit --create',
    async run(given) {
      const slugs = given.listOrNone('permission')
      if (slugs === undefined) throw new UsageError("--permission is required; --permission '' removes all")
      const client = await given.client()
      const create = given.flag('create')
      const now = await client.post<unknown>('permissions.setRolePermissions', {
        roleId: await idOf(given, client),
        permissions: slugs.map((slug) => ({ slug, create })),
      })
      given.print('changed', now)
    },
  },
  {
    name: 'role delete',
    about: 'delete a role and remove it from all keys',
    arguments: NAME,
    options: BY_ID,
    example: 'role delete editor',
    async run(given) {
      const client = await given.client()
      await client.post('permissions.deleteRole', { roleId: await idOf(given, client) })
      given.print('deleted', {})
    },
  },
]

const listed = (client: Client) => client.get<ListRolesReply>('permissions.listRoles')

/** The API takes ids, people know names. @throws CallError */
async function idOf(given: Arguments, client: Client): Promise<string> {
  const word = given.argument('name')
  if (given.has('id')) return word
  const found = (await listed(client)).find(({ name }) => name === word)
  if (found !== undefined) return found.id
  throw new CallError('there is no role with this name', {
    code: 'NOT_FOUND',
    hint: 'tollgate role list shows what exists; with --id, the argument is an id',
  })
}
