import type { Command } from './arguments.ts'
import { UsageError } from './arguments.ts'
import { Client } from './client.ts'
import { tableText, timeText } from './text.ts'

const permissions = {
  permission: {
    value: '<permission>',
    about: 'what it may do, such as api.*.create_key, or * for everything; repeat it for several',
    isList: true,
  },
}
const id = { id: { value: '<id>', about: 'of the root key', isRequired: true } }
const name = { name: { value: '<text>', about: 'for people' } }
const expires = {
  expires: {
    value: '<ms>',
    about: 'Unix milliseconds from which it is refused; else with the root key that makes it',
  },
}
const granted = (what: string) => ({
  granted: { value: null, about: `${what} the root keys it made, and those that they made, too` },
})

type RootKey = {
  id: string
  name?: string
  start: string
  permissions: string[]
  enabled: boolean
  expires?: number
  createdAt: number
}

export const rootKeyCommands: Command[] = [
  {
    name: 'root-key create',
    about: 'make a root key; it is shown once',
    options: {
      ...permissions,
      ...name,
      ...expires,
      workspace: {
        value: '<id>',
        about: 'another workspace, such as one that lost its root keys (operator root key only)',
      },
    },
    async run(given) {
      const reply = await new Client().post<{ rootKeyId: string; rootKey: string }>(
        'rootKeys.createRootKey',
        {
          permissions: given.list('permission'),
          name: given.text('name'),
          expires: given.whole('expires'),
          workspaceId: given.text('workspace'),
        },
      )
      given.print(`${reply.rootKey}\n(id ${reply.rootKeyId})`, reply)
    },
  },
  {
    name: 'root-key list',
    about: 'list root keys',
    options: { 'granted-by': { value: '<id>', about: 'only those that this root key made' } },
    async run(given) {
      const query = { grantedBy: given.text('granted-by') }
      const keys = await new Client().list<RootKey>('rootKeys.listRootKeys', 'rootKeys', query)
      const rows = keys.map((key) => [
        key.id,
        key.name ?? '',
        `${key.start}…`,
        key.enabled ? 'yes' : 'no',
        timeText(key.createdAt),
        key.permissions.join(' '),
      ])
      given.print(tableText(['id', 'name', 'start', 'enabled', 'made', 'permissions'], rows), keys)
    },
  },
  {
    name: 'root-key update',
    about: 'change a root key; what is not given stays',
    options: {
      ...id,
      ...permissions,
      ...name,
      expires: { value: '<ms>', about: 'Unix milliseconds from which it is refused; never = not at all' },
      enable: { value: null, about: 'accept it again' },
      disable: { value: null, about: 'refuse it' },
      ...granted('with --disable: refuse'),
    },
    async run(given) {
      if (given.has('enable') && given.has('disable')) throw new UsageError('--enable or --disable, not both')
      if (given.has('granted') && !given.has('disable')) throw new UsageError('--granted goes with --disable')
      const listed = given.list('permission')
      await new Client().post('rootKeys.updateRootKey', {
        rootKeyId: given.required('id'),
        name: given.text('name'),
        permissions: listed.length === 0 ? undefined : listed,
        expires: given.text('expires') === 'never' ? null : given.whole('expires'),
        enabled: given.has('enable') ? true : given.has('disable') ? false : undefined,
        granted: given.has('granted') ? true : undefined,
      })
      given.print('changed', {})
    },
  },
  {
    name: 'root-key delete',
    about: 'revoke a root key for good',
    options: { ...id, ...granted('revoke') },
    async run(given) {
      const body = { rootKeyId: given.required('id'), granted: given.has('granted') ? true : undefined }
      await new Client().post('rootKeys.deleteRootKey', body)
      given.print('deleted', {})
    },
  },
]
