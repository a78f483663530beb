import type { Command, Option } from './arguments.ts'
import type { CreateRootKeyReply, ListRootKeysReply } from './replies.ts'
import { MAX_ITEMS, NAME } from './shared-options.ts'
import { tableText, timeText, timeTextOr, yesOrNo } from './text.ts'
import { UsageError } from './usage-error.ts'

const ROOT_KEY_ID = { 'root key id': 'from root-key create or root-key list; not the root key itself' }
const ID = { id: { value: '<id>', about: 'the same as <root key id>', standsFor: 'root key id' } }
const granted = (what: string): Record<string, Option> => ({
  granted: { value: null, about: `${what} the root keys it made, and those that they made, too` },
})

export const rootKeyCommands: Command[] = [
  {
    name: 'root-key list',
    about: 'list root keys',
    options: { 'granted-by': { value: '<id>', about: 'only those that this root key made' }, ...MAX_ITEMS },
    example: 'root-key list',
    async run(given) {
      const client = await given.client()
      const keys = await client.list<ListRootKeysReply['rootKeys'][number]>(
        'rootKeys.listRootKeys',
        'rootKeys',
        { grantedBy: given.text('granted-by') },
        given.whole('max', 1),
      )
      const rows = keys.map((key) => [
        key.id,
        key.name ?? '',
        `${key.start}…`,
        yesOrNo(key.enabled),
        timeTextOr(key.expires, 'never'),
        timeText(key.createdAt),
        key.permissions.join(' ') || 'none',
      ])
      given.print(tableText(['id', 'name', 'start', 'enabled', 'expires', 'made', 'permissions'], rows), keys)
    },
  },
  {
    name: 'root-key create',
    about: 'make a root key; it is shown once',
    options: {
      permission: {
        value: '<permission>',
        about: 'what it may do, such as api.*.create_key, or * for everything; without one it may do nothing',
        isList: true,
      },
      ...NAME,
      expires: {
        value: '<time>',
        about: 'when it ends; 90d is in 90 days; default: with the root key that makes it',
      },
      workspace: {
        value: '<id>',
        about: 'another workspace, such as one that lost its root keys (operator root key only)',
      },
    },
    example: `root-key create --name backend --permission 'api.*.create_key' --expires 90d`,
    async run(given) {
      const client = await given.client()
      const permissions = given.listOrNone('permission') ?? []
      const reply = await client.post<CreateRootKeyReply>('rootKeys.createRootKey', {
        permissions,
        name: given.text('name'),
        expires: given.time('expires', 'forward'),
        workspaceId: given.text('workspace'),
      })
      const rights =
        permissions.length === 0
          ? `it may do nothing: no --permission was given; tollgate root-key update ${reply.rootKeyId} --permission … gives it one`
          : `it may: ${permissions.join(' ')}`
      const end = reply.expires === undefined ? '' : `\nit ends ${timeText(reply.expires)} UTC`
      given.print(`${reply.rootKey}\n(id ${reply.rootKeyId})\n${rights}${end}`, { ...reply, permissions })
    },
  },
  {
    name: 'root-key update',
    about: 'change a root key; what is not given stays',
    arguments: ROOT_KEY_ID,
    options: {
      ...ID,
      permission: {
        value: '<permission>',
        about: 'it may do exactly these from now on; empty: nothing',
        isList: true,
      },
      name: { value: '<text>', about: 'for people; empty: none' },
      expires: { value: '<time>|never', about: 'when it ends' },
      enable: { value: null, about: 'accept it again' },
      disable: { value: null, about: 'refuse it' },
      ...granted('with --disable: refuse'),
    },
    example: 'root-key update rk_1234 --expires never --enable',
    async run(given) {
      if (given.has('granted') && !given.has('disable')) throw new UsageError('--granted goes with --disable')
      const body = {
        rootKeyId: given.argument('root key id'),
        name: given.textOrNull('name'),
        permissions: given.listOrNone('permission'),
        expires: given.end('expires'),
        enabled: given.enabled(),
        granted: given.flag('granted'),
      }
      await (await given.client()).post('rootKeys.updateRootKey', body)
      given.print('changed', {})
    },
  },
  {
    name: 'root-key delete',
    about: 'revoke a root key for good',
    arguments: ROOT_KEY_ID,
    options: { ...ID, ...granted('revoke') },
    example: 'root-key delete rk_1234 --granted',
    async run(given) {
      const body = { rootKeyId: given.argument('root key id'), granted: given.flag('granted') }
      await (await given.client()).post('rootKeys.deleteRootKey', body)
      given.print('deleted', {})
    },
  },
]
