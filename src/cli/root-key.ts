import type { Command, Option } from './arguments.ts'
import type {
  CreateRootKeyReply,
  ListRootKeysReply,
  RerollRootKeyReply,
  WhoamiRootKeyReply,
} from './replies.ts'
import { printAnswers } from './server-answers.ts'
import { MAX_ITEMS, NAME, OVERLAP } from './shared-options.ts'
import { tableText, timeText, timeTextOr, yesOrNo } from './text.ts'
import { UsageError } from './usage-error.ts'

const ROOT_KEY_ID = {
  'root key id': 'id of the root key, from root-key create or root-key list; not the root key itself',
}
const ID = { id: { value: '<id>', about: 'the same as <root key id>', standsFor: 'root key id' } }
const granted = (what: string, when = ''): Record<string, Option> => ({
  granted: {
    value: null,
    about: `${when}also ${what} every root key that descends from it: those it created, those that they created, and what any of them was rerolled into`,
  },
})

export const rootKeyCommands: Command[] = [
  {
    name: 'root-key whoami',
    about: 'show the root key that commands call with: its id, workspace, permissions and end',
    example: 'root-key whoami',
    async run(given) {
      const client = await given.client()
      const own = await client.get<WhoamiRootKeyReply>('rootKeys.whoami', {})
      given.print(
        [
          `id: ${own.rootKeyId}`,
          `name: ${own.name ?? 'none'}`,
          `workspace: ${own.workspaceName} (${own.workspaceId})`,
          `permissions: ${own.permissions.join(' ') || 'none'}`,
          `operator: ${yesOrNo(own.isOperator)}`,
          `expires: ${timeTextOr(own.expires, 'never')}`,
        ].join('\n'),
        own,
      )
    },
  },
  {
    name: 'root-key list',
    about: 'list root keys',
    options: {
      'granted-by': { value: '<id>', about: 'only root keys that this root key created' },
      ...MAX_ITEMS,
    },
    example: 'root-key list',
    async run(given) {
      const client = await given.client()
      const keys = await client.list<ListRootKeysReply['rootKeys'][number]>(
        'rootKeys.listRootKeys',
        'rootKeys',
        { grantedBy: given.text('granted-by'), lastUsed: true },
        given.whole('max', 1),
      )
      const rows = keys.map((key) => [
        key.id,
        key.name ?? '',
        `${key.start}…`,
        yesOrNo(key.enabled),
        timeTextOr(key.expires, 'never'),
        timeText(key.createdAt),
        timeTextOr(key.lastUsed, 'never'),
        key.permissions.join(' ') || 'none',
      ])
      given.print(
        tableText(['id', 'name', 'start', 'enabled', 'expires', 'created', 'last used', 'permissions'], rows),
        keys,
      )
    },
  },
  {
    name: 'root-key create',
    about: 'create a root key; the root key itself is shown only once',
    options: {
      permission: {
        value: '<permission>',
        about: 'permission, such as api.*.create_key, or * for everything; default: none',
        isList: true,
      },
      ...NAME,
      expires: {
        value: '<time>',
        about: 'when it expires; 90d = in 90 days; default: when the root key that creates it expires',
      },
      workspace: {
        value: '<id>',
        about:
          'create it in another workspace, for example one that lost its root keys (operator root key only)',
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
          ? `permissions: none; add some with tollgate root-key update ${reply.rootKeyId} --permission …`
          : `permissions: ${permissions.join(' ')}`
      const end = reply.expires === undefined ? '' : `\nexpires: ${timeText(reply.expires)} UTC`
      given.print(`${reply.rootKey}\n(id ${reply.rootKeyId})\n${rights}${end}`, { ...reply, permissions })
    },
  },
  {
    name: 'root-key update',
    about: 'change a root key; fields without an option stay as they are',
    arguments: ROOT_KEY_ID,
    options: {
      ...ID,
      permission: {
        value: '<permission>',
        about: 'replaces its permissions; empty: none',
        isList: true,
      },
      name: { value: '<text>', about: 'display name; empty: none' },
      expires: { value: '<time>|never', about: 'when it expires' },
      enable: { value: null, about: 'accept the root key again' },
      disable: { value: null, about: 'refuse the root key' },
      ...granted('disable', 'with --disable: '),
    },
    example: 'root-key update rk_1234 --expires never --enable',
    async run(given) {
      if (given.has('granted') && !given.has('disable')) throw new UsageError('--granted needs --disable')
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
    name: 'root-key reroll',
    about: 'replace a root key with a new one that has all that it has; the new root key is shown only once',
    arguments: ROOT_KEY_ID,
    options: { ...ID, ...OVERLAP },
    example: 'root-key reroll rk_1234 --overlap 24h',
    async run(given) {
      const overlap = given.duration('overlap', 0)
      const client = await given.client()
      const body = { rootKeyId: given.argument('root key id'), overlap }
      const reply = await client.post<RerollRootKeyReply>('rootKeys.rerollRootKey', body)
      const end = `the old root key expires: ${timeText(reply.oldRootKeyExpires)} UTC`
      given.print(`${reply.rootKey}\n(id ${reply.rootKeyId})\n${end}`, reply)
    },
  },
  {
    name: 'root-key delete',
    about: 'delete a root key; it is refused at once',
    arguments: ROOT_KEY_ID,
    options: { ...ID, ...granted('delete') },
    example: 'root-key delete rk_1234 --granted',
    async run(given) {
      const body = { rootKeyId: given.argument('root key id'), granted: given.flag('granted') }
      await (await given.client()).post('rootKeys.deleteRootKey', body)
      given.print('deleted', {})
    },
  },
  {
    name: 'root-key servers',
    about:
      'ask every server on the database what it answers about a root key, also after it was deleted; exit status 1 if they differ or one does not answer',
    arguments: ROOT_KEY_ID,
    options: ID,
    example: 'root-key servers rk_1234',
    run: (given) => printAnswers(given, 'rootKeys.askServers', { rootKeyId: given.argument('root key id') }),
  },
]
