import type { Command, Option } from './arguments.ts'
import type { GetApiReply, ListApisReply } from './replies.ts'
import { isConfirmed, MAX_ITEMS, requireChange, YES } from './shared-options.ts'
import { fieldsText, tableText } from './text.ts'
import { UsageError } from './usage-error.ts'

const API_ID = { 'API id': 'from api create or api list' }

export const apiCommands: Command[] = [
  {
    name: 'api list',
    about: 'list APIs',
    options: MAX_ITEMS,
    example: 'api list',
    async run(given) {
      const client = await given.client()
      const apis = await client.list<ListApisReply['apis'][number]>(
        'apis.listApis',
        'apis',
        {},
        given.whole('max', 1),
      )
      given.print(
        tableText(
          ['id', 'name'],
          apis.map(({ id, name }) => [id, name]),
        ),
        apis,
      )
    },
  },
  {
    name: 'api get',
    about: 'show one API',
    arguments: API_ID,
    example: 'api get api_1234',
    async run(given) {
      const client = await given.client()
      const api = await client.get<GetApiReply>('apis.getApi', { apiId: given.argument('API id') })
      given.print(fieldsText({ id: api.id, name: api.name, workspace: api.workspaceId }), api)
    },
  },
  {
    name: 'api create',
    about: 'create an API, which is a set of keys',
    arguments: { name: 'display name, 3 to 256 characters' },
    options: { name: { value: '<text>', about: 'the same as <name>', standsFor: 'name' } },
    example: 'api create my-api',
    async run(given) {
      const client = await given.client()
      const reply = await client.post<{ apiId: string }>('apis.createApi', { name: given.argument('name') })
      given.print(reply.apiId, reply)
    },
  },
  {
    name: 'api update',
    about: 'change an API; fields without an option stay as they are',
    arguments: API_ID,
    options: {
      name: { value: '<text>', about: 'display name' },
      protect: { value: null, about: 'switch on delete protection: api delete is refused' },
      unprotect: { value: null, about: 'switch off delete protection' },
      'allow-ip': {
        value: '<range>',
        about: 'IP allow list: addresses and CIDR ranges from which its keys may be used; empty: any address',
        isList: true,
      },
      'default-prefix': { value: '<text>', about: 'prefix of new keys that do not set one; empty: none' },
      'default-bytes': { value: '<n>', about: 'number of random bytes of new keys' },
      recoverable: { value: 'yes|no', about: 'whether its keys may be recoverable' },
    },
    example: 'api update api_1234 --allow-ip 10.0.0.0/8 --protect',
    async run(given) {
      if (given.has('protect') && given.has('unprotect'))
        throw new UsageError('give --protect or --unprotect, not both')
      const ranges = given.listOrNone('allow-ip')
      const recoverable = given.text('recoverable')
      if (recoverable !== undefined && recoverable !== 'yes' && recoverable !== 'no')
        throw new UsageError('--recoverable must be yes or no')
      const body = {
        apiId: given.argument('API id'),
        name: given.text('name'),
        deleteProtection: given.has('protect') ? true : given.has('unprotect') ? false : undefined,
        ipWhitelist: ranges?.length === 0 ? null : ranges,
        defaultPrefix: given.textOrNull('default-prefix'),
        defaultBytes: given.whole('default-bytes', 16),
        storeEncryptedKeys: recoverable === undefined ? undefined : recoverable === 'yes',
      }
      requireChange(body, ['apiId'])
      await (await given.client()).post('apis.updateApi', body)
      given.print('changed', {})
    },
  },
  {
    name: 'api delete',
    about: 'delete an API and all of its keys',
    arguments: API_ID,
    options: YES,
    example: 'api delete api_1234 --yes',
    async run(given) {
      const apiId = given.argument('API id')
      if (!isConfirmed(given, `Delete API ${apiId} and all of its keys?`, 'nothing was deleted')) return 1
      await (await given.client()).post('apis.deleteApi', { apiId })
      given.print('deleted', {})
      return 0
    },
  },
  {
    name: 'api delete-keys',
    about: 'delete every key of an API; the API stays',
    arguments: API_ID,
    options: { permanent: PERMANENT('their records'), ...YES },
    example: 'api delete-keys api_1234 --yes',
    async run(given) {
      const apiId = given.argument('API id')
      if (!isConfirmed(given, `Delete every key of API ${apiId}?`, 'nothing was deleted')) return 1
      const client = await given.client()
      const body = { apiId, permanent: given.flag('permanent') }
      const reply = await client.post<{ deletedKeys: number }>('apis.deleteKeys', body)
      given.print(`deleted ${reply.deletedKeys} key${reply.deletedKeys === 1 ? '' : 's'}`, reply)
      return 0
    },
  },
]

function PERMANENT(what: string): Option {
  return { value: null, about: `also remove ${what}, so that the same keys can be imported again` }
}
