import type { Command } from './arguments.ts'
import { Client } from './client.ts'
import { erase } from './erase.ts'

export const keyCommands: Command[] = [
  {
    name: 'key create',
    about: 'make a key; it is shown once',
    options: {
      api: { value: '<id>', about: 'the API it belongs to', isRequired: true },
      prefix: { value: '<text>', about: 'the key then reads <prefix>_<random>' },
      name: { value: '<text>', about: 'for people' },
      'external-id': { value: '<text>', about: 'your id of the user or organisation' },
      permission: { value: '<slug>', about: 'an existing permission; repeat it for several', isList: true },
      role: { value: '<name>', about: 'an existing role; repeat it for several', isList: true },
      remaining: { value: '<n>', about: 'uses it has; without it they are not counted' },
      expires: { value: '<ms>', about: 'Unix milliseconds from which it is refused' },
    },
    async run(given) {
      const [permissions, roles] = [given.list('permission'), given.list('role')]
      const reply = await new Client().post<{ keyId: string; key: string }>('keys.createKey', {
        apiId: given.required('api'),
        prefix: given.text('prefix'),
        name: given.text('name'),
        externalId: given.text('external-id'),
        permissions: permissions.length === 0 ? undefined : permissions,
        roles: roles.length === 0 ? undefined : roles,
        remaining: given.whole('remaining', 1),
        expires: given.whole('expires'),
      })
      given.print(`${reply.key}\n(id ${reply.keyId})`, reply)
    },
  },
  {
    name: 'key verify',
    about:
      'is this key good? ends with 1 when it is not; - reads it from stdin, where no list of processes shows it',
    positional: '<key>',
    options: { api: { value: '<id>', about: 'refuse keys of other APIs' } },
    async run(given) {
      const key = given.positional === '-' ? (await Bun.stdin.text()).trim() : given.positional
      const reply = await new Client().post<{
        valid: boolean
        code: string
        keyId?: string
        remaining?: number
      }>('keys.verifyKey', { key, apiId: given.text('api') })
      const facts = [
        reply.code,
        reply.keyId,
        reply.remaining === undefined ? undefined : `${reply.remaining} uses left`,
      ]
      given.print(facts.filter((fact) => fact !== undefined).join('  '), reply)
      return reply.valid ? 0 : 1
    },
  },
  {
    name: 'key revoke',
    about: 'delete a key: its very next use is refused',
    positional: '<key id>',
    async run(given) {
      await new Client().post('keys.deleteKey', { keyId: given.positional })
      given.print('deleted', {})
    },
  },
  {
    name: 'key erase',
    about:
      'erase a key, also a deleted one: its record, and its id in counts and audit events; cannot be undone',
    positional: '<key id>',
    options: { yes: { value: null, about: 'do it without asking' } },
    run: (given) =>
      erase(given, {
        what: `key ${given.positional}`,
        method: 'keys.eraseKey',
        body: { keyId: given.positional },
      }),
  },
]
