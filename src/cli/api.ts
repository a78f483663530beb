import type { Command } from './arguments.ts'
import { Client } from './client.ts'
import { tableText } from './text.ts'

export const apiCommands: Command[] = [
  {
    name: 'api create',
    about: 'make an API, which is a set of keys',
    options: { name: { value: '<text>', about: 'for people', isRequired: true } },
    async run(given) {
      const reply = await new Client().post<{ apiId: string }>('apis.createApi', {
        name: given.required('name'),
      })
      given.print(reply.apiId, reply)
    },
  },
  {
    name: 'api list',
    about: 'list APIs',
    async run(given) {
      const apis = await new Client().list<{ id: string; name: string }>('apis.listApis', 'apis')
      given.print(
        tableText(
          ['id', 'name'],
          apis.map(({ id, name }) => [id, name]),
        ),
        apis,
      )
    },
  },
]
