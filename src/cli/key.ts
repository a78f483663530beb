import { durationText } from '../lib/written-time.ts'
import { type Arguments, type Command, type Option, quoted } from './arguments.ts'
import { erase } from './erase.ts'
import { readRate } from './rate.ts'
import type {
  CreateKeyReply,
  KeyObject,
  UpdateRemainingReply,
  VerifyKeyReply,
  WhoamiReply,
} from './replies.ts'
import { MAX_ITEMS, META, NAME, requireChange, YES } from './shared-options.ts'
import { fieldsText, tableText, timeText, timeTextOr, yesOrNo } from './text.ts'
import { UsageError } from './usage-error.ts'

const KEY_ID = { 'key id': 'from key create or key list; not the key itself' }
const PERMISSION = {
  permission: { value: '<slug>', about: 'an existing permission', isList: true },
} satisfies Record<string, Option>
const ROLE = { role: { value: '<name>', about: 'an existing role', isList: true } } satisfies Record<
  string,
  Option
>
const REFILL = {
  refill: { value: '<n>/day|<n>/month', about: 'adds so many credits each day or month' },
  'refill-day': { value: '<n>', about: 'the day of the month of a monthly refill; default 1' },
} satisfies Record<string, Option>
const DECRYPT = { value: null, about: 'also the whole key, where it is recoverable' } satisfies Option

export const keyCommands: Command[] = [
  {
    name: 'key list',
    about: 'list the keys of an API',
    options: {
      api: { value: '<id>', about: 'the API', isRequired: true },
      'external-id': { value: '<text>', about: 'only keys of this identity', alias: 'owner' },
      decrypt: DECRYPT,
      ...MAX_ITEMS,
    },
    example: 'key list --api api_1234 --external-id user_123',
    async run(given) {
      const client = await given.client()
      const query = {
        apiId: given.required('api'),
        externalId: given.text('external-id'),
        decrypt: given.flag('decrypt'),
      }
      const keys = await client.list<KeyObject>('apis.listKeys', 'keys', query, given.whole('max', 1))
      const hasText = given.has('decrypt')
      const rows = keys.map((key) => [
        key.id,
        key.name ?? '',
        `${key.start}…`,
        key.identity?.externalId ?? key.ownerId ?? '',
        yesOrNo(key.enabled),
        key.remaining ?? '',
        timeTextOr(key.expires, 'never'),
        timeText(key.createdAt),
        ...(hasText ? [key.plaintext ?? ''] : []),
      ])
      const head = ['id', 'name', 'start', 'external id', 'enabled', 'credits', 'expires', 'made']
      given.print(tableText([...head, ...(hasText ? ['key'] : [])], rows), keys)
    },
  },
  {
    name: 'key get',
    about: 'show one key',
    arguments: KEY_ID,
    options: { decrypt: DECRYPT },
    example: 'key get key_1234',
    async run(given) {
      const client = await given.client()
      const query = { keyId: given.argument('key id'), decrypt: given.flag('decrypt') }
      const key = await client.get<KeyObject>('keys.getKey', query)
      given.print(keyText(key), key)
    },
  },
  {
    name: 'key create',
    about: 'make a key; it is shown once',
    options: {
      api: { value: '<id>', about: 'the API it belongs to', isRequired: true },
      prefix: { value: '<text>', about: 'the key then reads <prefix>_<random>' },
      bytes: { value: '<n>', about: 'random bytes in it; default 16' },
      ...NAME,
      'external-id': { value: '<text>', about: 'your id of the user or organisation' },
      ...META,
      ...PERMISSION,
      ...ROLE,
      credits: {
        value: '<n>',
        about: 'verifications it has; without it they are not counted',
        alias: 'remaining',
      },
      ...REFILL,
      ratelimit: { value: '<rate>', about: 'verifications it may have at a time' },
      expires: { value: '<time>', about: 'when it ends; 30d is in 30 days' },
      environment: { value: '<text>', about: 'divides your keys, as in live and test' },
      recoverable: { value: null, about: 'also keep it encrypted, so that it can be read back' },
      disabled: { value: null, about: 'refuse it until key update --enable' },
    },
    example: 'key create --api api_1234 --prefix demo --expires 30d --ratelimit 100/1m',
    async run(given) {
      const client = await given.client()
      const reply = await client.post<CreateKeyReply>('keys.createKey', {
        apiId: given.required('api'),
        prefix: given.text('prefix'),
        byteLength: given.whole('bytes', 16),
        name: given.text('name'),
        externalId: given.text('external-id'),
        meta: given.object('meta'),
        permissions: given.listOrNone('permission'),
        roles: given.listOrNone('role'),
        remaining: given.whole('credits', 1),
        refill: readRefill(given),
        ratelimit: rateOf(given),
        expires: given.time('expires', 'forward'),
        environment: given.text('environment'),
        recoverable: given.flag('recoverable'),
        enabled: given.has('disabled') ? false : undefined,
      })
      given.print(`${reply.key}\n(id ${reply.keyId})`, reply)
    },
  },
  {
    name: 'key update',
    about: 'change a key; what is not given stays',
    arguments: KEY_ID,
    options: {
      name: { value: '<text>', about: 'for people; empty: none' },
      'external-id': { value: '<text>', about: 'your id of the user or organisation; empty: none' },
      meta: { value: '<json>', about: 'replaces the whole object; empty: none' },
      expires: { value: '<time>|never', about: 'when it ends' },
      credits: { value: '<n>|unlimited', about: 'verifications left', alias: 'remaining' },
      refill: { value: '<n>/day|<n>/month|none', about: 'adds so many credits each day or month' },
      'refill-day': REFILL['refill-day'],
      ratelimit: { value: '<rate>|none', about: 'verifications it may have at a time' },
      permission: {
        value: '<slug>',
        about: 'its own permissions are exactly these from now on; empty: none',
        isList: true,
      },
      role: { value: '<name>', about: 'its roles are exactly these from now on; empty: none', isList: true },
      enable: { value: null, about: 'accept it again' },
      disable: { value: null, about: 'refuse it' },
    },
    example: 'key update key_1234 --credits 1000 --expires 2027-12-31',
    async run(given) {
      const isNone = (name: string) => given.text(name) === 'none'
      const body = {
        keyId: given.argument('key id'),
        name: given.textOrNull('name'),
        externalId: given.textOrNull('external-id'),
        meta: given.text('meta') === '' ? null : given.object('meta'),
        expires: given.end('expires'),
        remaining: given.wholeOrNull('credits', 'unlimited'),
        refill: isNone('refill') ? null : readRefill(given),
        ratelimit: isNone('ratelimit') ? null : rateOf(given),
        permissions: given.listOrNone('permission')?.map((slug) => ({ slug })),
        roles: given.listOrNone('role')?.map((name) => ({ name })),
        enabled: given.enabled(),
      }
      requireChange(body, ['keyId'])
      await (await given.client()).post('keys.updateKey', body)
      given.print('changed', {})
    },
  },
  {
    name: 'key credits',
    about: 'add, take or set the credits of a key',
    arguments: KEY_ID,
    options: {
      add: { value: '<n>', about: 'so many more' },
      take: { value: '<n>', about: 'so many fewer, down to 0' },
      set: { value: '<n>|unlimited', about: 'exactly so many, or uncounted' },
    },
    example: 'key credits key_1234 --add 500',
    async run(given) {
      const changes = [
        { op: 'increment', value: given.whole('add') },
        { op: 'decrement', value: given.whole('take') },
        { op: 'set', value: given.wholeOrNull('set', 'unlimited') },
      ].filter(({ value }) => value !== undefined)
      if (changes.length !== 1) throw new UsageError('one of --add, --take and --set is required')
      const client = await given.client()
      const body = { keyId: given.argument('key id'), ...changes[0] }
      const reply = await client.post<UpdateRemainingReply>('keys.updateRemaining', body)
      given.print(
        reply.remaining === null ? 'credits are not counted' : `${reply.remaining} credits left`,
        reply,
      )
    },
  },
  linkCommand({
    name: 'key grant',
    about: 'give a key permissions or roles; it keeps those it has',
    methods: { permissions: 'keys.addPermissions', roles: 'keys.addRoles' },
    example: 'key grant key_1234 --permission documents.read',
  }),
  linkCommand({
    name: 'key ungrant',
    about: 'take permissions or roles from a key',
    methods: { permissions: 'keys.removePermissions', roles: 'keys.removeRoles' },
    example: 'key ungrant key_1234 --permission documents.read',
  }),
  {
    name: 'key verify',
    about: 'is this key good? ends with 1 when it is not',
    arguments: { key: 'the whole key, or - for stdin, where no list of processes shows it' },
    options: { api: { value: '<id>', about: 'refuse keys of other APIs' } },
    example: 'key verify - < key.txt',
    async run(given) {
      const client = await given.client()
      const key = await keyOf(given)
      const reply = await client.post<VerifyKeyReply>('keys.verifyKey', { key, apiId: given.text('api') })
      const facts = [
        reply.code,
        reply.keyId,
        reply.remaining === undefined ? undefined : `${reply.remaining} credits left`,
      ]
      given.print(facts.filter((fact) => fact !== undefined).join('  '), reply)
      return reply.valid ? 0 : 1
    },
  },
  {
    name: 'key whoami',
    about: 'show which key this is; it counts as no verification',
    arguments: { key: 'the whole key, or - for stdin, where no list of processes shows it' },
    example: 'key whoami - < key.txt',
    async run(given) {
      const client = await given.client()
      const reply = await client.post<WhoamiReply>('keys.whoami', { key: await keyOf(given) })
      const { id, name, identity, remaining, enabled, environment, createdAt } = reply
      given.print(
        fieldsText({
          id,
          name,
          'external id': identity?.externalId,
          credits: remaining,
          enabled: yesOrNo(enabled),
          environment,
          made: timeText(createdAt),
        }),
        reply,
      )
    },
  },
  {
    name: 'key revoke',
    about: 'delete a key: its very next use is refused',
    arguments: KEY_ID,
    options: {
      permanent: {
        value: null,
        about: 'remove its record too, so that the same key may be imported again',
      },
    },
    example: 'key revoke key_1234',
    async run(given) {
      const client = await given.client()
      await client.post('keys.deleteKey', {
        keyId: given.argument('key id'),
        permanent: given.flag('permanent'),
      })
      given.print('deleted', {})
    },
  },
  {
    name: 'key erase',
    about: 'erase a key, also a deleted one, and its id in counts and audit events; cannot be undone',
    arguments: KEY_ID,
    options: YES,
    example: 'key erase key_1234 --yes',
    run: (given) =>
      erase(given, {
        what: `key ${given.argument('key id')}`,
        method: 'keys.eraseKey',
        body: { keyId: given.argument('key id') },
      }),
  },
]

/** A call changes either roles or permissions, all of them or none. */
function linkCommand({
  methods,
  ...command
}: Pick<Command, 'name' | 'about' | 'example'> & {
  methods: { permissions: string; roles: string }
}): Command {
  return {
    ...command,
    arguments: KEY_ID,
    options: { ...PERMISSION, ...ROLE },
    async run(given) {
      const [slugs, names] = [given.list('permission'), given.list('role')]
      if ((slugs.length === 0) === (names.length === 0))
        throw new UsageError('either --permission or --role is required, not both')
      const client = await given.client()
      const keyId = given.argument('key id')
      const now =
        names.length === 0
          ? await client.post<unknown>(methods.permissions, {
              keyId,
              permissions: slugs.map((slug) => ({ slug })),
            })
          : await client.post<unknown>(methods.roles, { keyId, roles: names.map((name) => ({ name })) })
      given.print('changed', now)
    },
  }
}

/** The key's text. @throws UsageError when it is missing. */
async function keyOf(given: Arguments): Promise<string> {
  const word = given.argument('key')
  const key = word === '-' ? (await given.terminal.readStdin()).trim() : word
  if (key === '') throw new UsageError('stdin holds no key')
  return key
}

function rateOf(given: Arguments) {
  const text = given.text('ratelimit')
  return text === undefined ? undefined : readRate('ratelimit', text)
}

/** @throws UsageError */
function readRefill(given: Arguments) {
  const text = given.text('refill')
  const refillDay = given.whole('refill-day', 1)
  if (text === undefined) {
    if (refillDay !== undefined) throw new UsageError('--refill-day goes with --refill <n>/month')
    return undefined
  }
  const [, amount, unit] = /^(\d+)\/(day|daily|month|monthly)$/.exec(text) ?? []
  if (amount === undefined || unit === undefined)
    throw new UsageError(`--refill is ${quoted(text)}; it wants an amount such as 1000/day or 1000/month`)
  const isMonthly = unit.startsWith('month')
  if (refillDay !== undefined && !isMonthly) throw new UsageError('--refill-day goes with --refill <n>/month')
  return { interval: isMonthly ? 'monthly' : 'daily', amount: Number(amount), refillDay }
}

function keyText(key: KeyObject): string {
  const { refill, ratelimit, identity } = key
  const day = refill?.interval === 'monthly' ? ` on day ${refill.refillDay ?? 1}` : ''
  return fieldsText({
    id: key.id,
    name: key.name,
    start: `${key.start}…`,
    key: key.plaintext,
    api: key.apiId,
    'external id': identity?.externalId ?? key.ownerId,
    enabled: yesOrNo(key.enabled),
    credits: key.remaining ?? 'unlimited',
    refill: refill === undefined ? undefined : `${refill.amount} ${refill.interval}${day}`,
    ratelimit: ratelimit === undefined ? undefined : `${ratelimit.limit}/${durationText(ratelimit.duration)}`,
    expires: timeTextOr(key.expires, 'never'),
    roles: key.roles.join(' ') || 'none',
    permissions: key.permissions.join(' ') || 'none',
    environment: key.environment,
    meta: key.meta === undefined ? undefined : JSON.stringify(key.meta),
    made: timeText(key.createdAt),
    changed: key.updatedAt === undefined ? undefined : timeText(key.updatedAt),
  })
}
