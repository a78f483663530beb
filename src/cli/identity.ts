import { durationText } from '../lib/written-time.ts'
import type { Arguments, Command } from './arguments.ts'
import { erase } from './erase.ts'
import { type Rate, readNamedRate } from './rate.ts'
import type { IdentityReply, ListIdentitiesReply } from './replies.ts'
import { IS_ID, isConfirmed, MAX_ITEMS, META, requireChange, YES } from './shared-options.ts'
import { fieldsText, tableText } from './text.ts'

const EXTERNAL_ID = { 'external id': 'your id of the user or organisation' }
const BY_ID = IS_ID('an external id')
const RATELIMITS = {
  value: '<name>=<rate>',
  about: 'rate limit that its keys share; a verification checks it if it names it',
  isList: true,
} as const

export const identityCommands: Command[] = [
  {
    name: 'identity list',
    about: 'list identities: users and organisations that keys belong to',
    options: MAX_ITEMS,
    example: 'identity list --max 10',
    async run(given) {
      const client = await given.client()
      const identities = await client.list<ListIdentitiesReply['identities'][number]>(
        'identities.listIdentities',
        'identities',
        {},
        given.whole('max', 1),
      )
      const rows = identities.map(({ id, externalId, ratelimits }) => [id, externalId, ratesText(ratelimits)])
      given.print(tableText(['id', 'external id', 'ratelimits'], rows), identities)
    },
  },
  {
    name: 'identity get',
    about: 'show one identity',
    arguments: EXTERNAL_ID,
    options: BY_ID,
    example: 'identity get user_123',
    async run(given) {
      const client = await given.client()
      const identity = await client.get<IdentityReply>('identities.getIdentity', nameOf(given))
      const { id, externalId, meta, ratelimits } = identity
      const shown = { id, 'external id': externalId, ratelimits: ratesText(ratelimits) || 'none' }
      given.print(fieldsText({ ...shown, meta: JSON.stringify(meta) }), identity)
    },
  },
  {
    name: 'identity create',
    about: 'create an identity',
    arguments: { 'external id': 'your id of the user or organisation, 3 to 256 characters' },
    options: { ...META, ratelimit: RATELIMITS },
    example: `identity create user_new --ratelimit requests=100/1m --meta '{"plan":"pro"}'`,
    async run(given) {
      const client = await given.client()
      const reply = await client.post<{ identityId: string }>('identities.createIdentity', {
        externalId: given.argument('external id'),
        meta: given.object('meta'),
        ratelimits: ratelimitsOf(given),
      })
      given.print(reply.identityId, reply)
    },
  },
  {
    name: 'identity update',
    about: 'change an identity; fields without an option stay as they are',
    arguments: EXTERNAL_ID,
    options: {
      ...BY_ID,
      meta: { value: '<json>', about: 'replaces the metadata; {} clears it' },
      ratelimit: { ...RATELIMITS, about: 'replaces its rate limits; empty: none' },
    },
    example: 'identity update user_123 --ratelimit requests=1000/1h',
    async run(given) {
      const body = { ...nameOf(given), meta: given.object('meta'), ratelimits: ratelimitsOf(given) }
      requireChange(body, ['identityId', 'externalId'])
      const identity = await (await given.client()).post<unknown>('identities.updateIdentity', body)
      given.print('changed', identity)
    },
  },
  {
    name: 'identity delete',
    about: 'delete an identity; its keys stay',
    arguments: EXTERNAL_ID,
    options: { ...BY_ID, ...YES },
    example: 'identity delete user_123 --yes',
    async run(given) {
      const name = given.argument('external id')
      if (!isConfirmed(given, `Delete identity ${name}?`, 'nothing was deleted')) return 1
      const client = await given.client()
      const identityId = given.has('id')
        ? name
        : (await client.get<IdentityReply>('identities.getIdentity', nameOf(given))).id
      await client.post('identities.deleteIdentity', { identityId })
      given.print('deleted', {})
      return 0
    },
  },
  {
    name: 'identity erase',
    about:
      'erase a person: the identity, its keys and every trace of both in usage and audit events; cannot be undone',
    arguments: EXTERNAL_ID,
    options: { ...BY_ID, ...YES },
    example: 'identity erase user_123 --yes',
    run: (given) =>
      erase(given, {
        what: `${given.argument('external id')} and all of its keys`,
        method: 'identities.eraseIdentity',
        body: nameOf(given),
      }),
  },
]

function nameOf(given: Arguments): { identityId: string } | { externalId: string } {
  const name = given.argument('external id')
  return given.has('id') ? { identityId: name } : { externalId: name }
}

const ratelimitsOf = (given: Arguments) =>
  given.listOrNone('ratelimit')?.map((text) => readNamedRate('ratelimit', text))

const ratesText = (rates: readonly (Rate & { name: string })[]) =>
  rates.map(({ name, limit, duration }) => `${name}=${limit}/${durationText(duration)}`).join(' ')
