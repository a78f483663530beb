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
    about: 'make an API, which is a set of keys',
    arguments: { name: 'for people, 3 to 256 characters' },
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
    about: 'change an API; what is not given stays',
    arguments: API_ID,
    options: {
      name: { value: '<text>', about: 'for people' },
      protect: { value: null, about: 'refuse api delete' },
      unprotect: { value: null, about: 'allow api delete' },
      'allow-ip': {
        value: '<range>',
        about: 'its keys are good from these addresses or CIDR ranges only; empty: from any',
        isList: true,
      },
      'default-prefix': { value: '<text>', about: 'of new keys that name none; empty: none' },
      'default-bytes': { value: '<n>', about: 'random bytes of new keys' },
      recoverable: { value: 'yes|no', about: 'whether its keys may be made recoverable' },
    },
    example: 'api update api_1234 --allow-ip 10.0.0.0/8 --protect',
    async run(given) {
      if (given.has('protect') && given.has('unprotect'))
        throw new UsageError('--protect or --unprotect, not both')
      const ranges = given.listOrNone('allow-ip')
      const recoverable = given.text('recoverable')
      if (recoverable !== undefined && recoverable !== 'yes' && recoverable !== 'no')
        throw new UsageError('--recoverable wants yes or no')
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
    about: 'delete an API: none of its keys is good any more',
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
  return { value: null, about: `remove ${what} too, so that the same keys may be imported again` }
}
