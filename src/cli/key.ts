import { durationText } from '../lib/written-time.ts'
import { type Arguments, type Command, type Option, quoted } from './arguments.ts'
import { erase } from './erase.ts'
import { readRate } from './rate.ts'
import type {
  CreateKeyReply,
  KeyObject,
  RerollKeyReply,
  UpdateRemainingReply,
  VerifyKeyReply,
  WhoamiReply,
} from './replies.ts'
import { printAnswers } from './server-answers.ts'
import { MAX_ITEMS, META, NAME, OVERLAP, requireChange, YES } from './shared-options.ts'
import { fieldsText, tableText, timeText, timeTextOr, yesOrNo } from './text.ts'
import { UsageError } from './usage-error.ts'

const KEY_ID = { 'key id': 'id of the key, from key create or key list; not the key itself' }
const PERMISSION = {
  permission: { value: '<slug>', about: 'slug of an existing permission', isList: true },
} satisfies Record<string, Option>
const ROLE = { role: { value: '<name>', about: 'name of an existing role', isList: true } } satisfies Record<
  string,
  Option
>
const REFILL = {
  refill: { value: '<n>/day|<n>/month', about: 'credits added each day or each month' },
  'refill-day': { value: '<n>', about: 'day of a monthly refill; default 1' },
} satisfies Record<string, Option>
const DECRYPT = { value: null, about: 'also show the key itself, if it is recoverable' } satisfies Option

export const keyCommands: Command[] = [
  {
    name: 'key list',
    about: 'list the keys of an API',
    options: {
      api: { value: '<id>', about: 'id of the API', isRequired: true },
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
      const head = ['id', 'name', 'start', 'external id', 'enabled', 'credits', 'expires', 'created']
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
    about: 'create a key; the key itself is shown only once',
    options: {
      api: { value: '<id>', about: 'id of the API that the key belongs to', isRequired: true },
      prefix: { value: '<text>', about: 'makes the key look like <prefix>_<random>' },
      bytes: { value: '<n>', about: 'number of random bytes; default 16' },
      ...NAME,
      'external-id': { value: '<text>', about: 'your id of the user or organisation' },
      ...META,
      ...PERMISSION,
      ...ROLE,
      credits: {
        value: '<n>',
        about: 'how often the key may be used; default: unlimited',
        alias: 'remaining',
      },
      ...REFILL,
      ratelimit: { value: '<rate>', about: 'rate limit of the key, such as 100/1m' },
      expires: { value: '<time>', about: 'when it expires; 30d = in 30 days; default: never' },
      environment: { value: '<text>', about: 'free label, such as live or test' },
      recoverable: { value: null, about: 'also store the key encrypted, so that it can be shown again' },
      disabled: { value: null, about: 'refuse the key until key update --enable' },
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
    about: 'change a key; fields without an option stay as they are',
    arguments: KEY_ID,
    options: {
      name: { value: '<text>', about: 'display name; empty: none' },
      'external-id': { value: '<text>', about: 'your id of the user or organisation; empty: none' },
      meta: { value: '<json>', about: 'replaces the metadata; empty: none' },
      expires: { value: '<time>|never', about: 'when it expires' },
      credits: { value: '<n>|unlimited', about: 'credits left', alias: 'remaining' },
      refill: { value: '<n>/day|<n>/month|none', about: 'credits added each day or each month' },
      'refill-day': REFILL['refill-day'],
      ratelimit: { value: '<rate>|none', about: 'rate limit of the key, such as 100/1m' },
      permission: {
        value: '<slug>',
        about: 'replaces its direct permissions; empty: none',
        isList: true,
      },
      role: { value: '<name>', about: 'replaces its roles; empty: none', isList: true },
      enable: { value: null, about: 'accept the key again' },
      disable: { value: null, about: 'refuse the key' },
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
    about: 'add, subtract or set the credits of a key',
    arguments: KEY_ID,
    options: {
      add: { value: '<n>', about: 'credits to add' },
      take: { value: '<n>', about: 'credits to subtract; the result is at least 0' },
      set: { value: '<n>|unlimited', about: 'new number of credits' },
    },
    example: 'key credits key_1234 --add 500',
    async run(given) {
      const changes = [
        { op: 'increment', value: given.whole('add') },
        { op: 'decrement', value: given.whole('take') },
        { op: 'set', value: given.wholeOrNull('set', 'unlimited') },
      ].filter(({ value }) => value !== undefined)
      if (changes.length !== 1) throw new UsageError('give one of --add, --take and --set')
      const client = await given.client()
      const body = { keyId: given.argument('key id'), ...changes[0] }
      const reply = await client.post<UpdateRemainingReply>('keys.updateRemaining', body)
      given.print(reply.remaining === null ? 'unlimited credits' : `${reply.remaining} credits left`, reply)
    },
  },
  linkCommand({
    name: 'key grant',
    about: 'add permissions or roles to a key',
    methods: { permissions: 'keys.addPermissions', roles: 'keys.addRoles' },
    example: 'key grant key_1234 --permission documents.read',
  }),
  linkCommand({
    name: 'key ungrant',
    about: 'remove permissions or roles from a key',
    methods: { permissions: 'keys.removePermissions', roles: 'keys.removeRoles' },
    example: 'key ungrant key_1234 --permission documents.read',
  }),
  {
    name: 'key verify',
    about: 'check whether a key is valid; exit status 1 if not',
    arguments: {
      key: 'the key itself, or - to read it from stdin, where other users of this machine cannot see it',
    },
    options: { api: { value: '<id>', about: 'id of an API; keys of other APIs are refused' } },
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
    about: 'show the record of a key; it is not counted as a verification',
    arguments: {
      key: 'the key itself, or - to read it from stdin, where other users of this machine cannot see it',
    },
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
          created: timeText(createdAt),
        }),
        reply,
      )
    },
  },
  {
    name: 'key reroll',
    about: 'replace a key with a new one that has all that it has; the new key is shown only once',
    arguments: KEY_ID,
    options: OVERLAP,
    example: 'key reroll key_1234 --overlap 24h',
    async run(given) {
      const overlap = given.duration('overlap', 0)
      const client = await given.client()
      const body = { keyId: given.argument('key id'), overlap }
      const reply = await client.post<RerollKeyReply>('keys.rerollKey', body)
      const end = `the old key expires: ${timeText(reply.oldKeyExpires)} UTC`
      given.print(`${reply.key}\n(id ${reply.keyId})\n${end}`, reply)
    },
  },
  {
    name: 'key revoke',
    about: 'delete a key; it is refused at once',
    arguments: KEY_ID,
    options: {
      permanent: {
        value: null,
        about: 'also remove its record, so that the same key can be imported again',
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
    name: 'key servers',
    about:
      'ask every server on the database what it answers about a key, also after it was deleted; exit status 1 if they differ or one does not answer',
    arguments: KEY_ID,
    example: 'key servers key_1234',
    run: (given) => printAnswers(given, 'keys.askServers', { keyId: given.argument('key id') }),
  },
  {
    name: 'key erase',
    about:
      'erase a key and every trace of its id in usage and audit events, also after it was deleted; cannot be undone',
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
        throw new UsageError('give --permission or --role, not both')
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
  if (key === '') throw new UsageError('stdin is empty; it must contain the key')
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
    if (refillDay !== undefined) throw new UsageError('--refill-day needs --refill <n>/month')
    return undefined
  }
  const [, amount, unit] = /^(\d+)\/(day|daily|month|monthly)$/.exec(text) ?? []
  if (amount === undefined || unit === undefined)
    throw new UsageError(`--refill is ${quoted(text)}; it must be an amount such as 1000/day or 1000/month`)
  const isMonthly = unit.startsWith('month')
  if (refillDay !== undefined && !isMonthly) throw new UsageError('--refill-day needs --refill <n>/month')
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
    created: timeText(key.createdAt),
    changed: key.updatedAt === undefined ? undefined : timeText(key.updatedAt),
  })
}
