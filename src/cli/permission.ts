import type { Arguments, Command } from './arguments.ts'
import type { Client } from './client.ts'
import { CallError } from './client.ts'
import type { CreatePermissionReply, ListPermissionsReply, PermissionReply } from './replies.ts'
import { DESCRIPTION, IS_ID, NAME } from './shared-options.ts'
import { fieldsText, tableText } from './text.ts'

const SLUG = { slug: 'slug of the permission, such as documents.read' }
const BY_ID = IS_ID('a slug')

export const permissionCommands: Command[] = [
  {
    name: 'permission list',
    about: 'list permissions for keys',
    example: 'permission list',
    async run(given) {
      const permissions = await listed(await given.client())
      const rows = permissions.map(({ id, slug, name, description }) => [id, slug, name, description ?? ''])
      given.print(tableText(['id', 'slug', 'name', 'description'], rows), permissions)
    },
  },
  {
    name: 'permission get',
    about: 'show one permission',
    arguments: SLUG,
    options: BY_ID,
    example: 'permission get documents.read',
    async run(given) {
      const client = await given.client()
      const permissionId = await idOf(given, client)
      const permission = await client.get<PermissionReply>('permissions.getPermission', { permissionId })
      const { id, slug, name, description } = permission
      given.print(fieldsText({ id, slug, name, description }), permission)
    },
  },
  {
    name: 'permission create',
    about: 'create a permission for keys',
    arguments: SLUG,
    options: { name: { ...NAME.name, about: 'display name; default: the slug' }, ...DESCRIPTION },
    example: 'permission create documents.write --description "May change documents"',
    async run(given) {
      const client = await given.client()
      const slug = given.argument('slug')
      const reply = await client.post<CreatePermissionReply>('permissions.createPermission', {
        slug,
        name: given.text('name') ?? slug,
        description: given.text('description'),
      })
      given.print(reply.permissionId, reply)
    },
  },
  {
    name: 'permission delete',
    about: 'delete a permission and remove it from all keys and roles',
    arguments: SLUG,
    options: BY_ID,
    example: 'permission delete documents.read',
    async run(given) {
      const client = await given.client()
      await client.post('permissions.deletePermission', { permissionId: await idOf(given, client) })
      given.print('deleted', {})
    },
  },
]

const listed = (client: Client) => client.get<ListPermissionsReply>('permissions.listPermissions')

/** The API takes ids, people know slugs. @throws CallError */
async function idOf(given: Arguments, client: Client): Promise<string> {
  const word = given.argument('slug')
  if (given.has('id')) return word
  const found = (await listed(client)).find(({ slug }) => slug === word)
  if (found !== undefined) return found.id
  throw new CallError('there is no permission with this slug', {
    code: 'NOT_FOUND',
    hint: 'tollgate permission list shows what exists; with --id, the argument is an id',
  })
}
