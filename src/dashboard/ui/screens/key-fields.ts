import type { KeyObject } from '../../../doors/v1/keys/schema.ts'
import { partsOfDuration, UNITS, type Unit } from './key-state.ts'

/** What the form of a key holds: texts as typed. */
export type KeyFields = {
  name: string
  prefix: string
  externalId: string
  environment: string
  enabled: boolean
  isRecoverable: boolean
  /** As `datetime-local` has it, in the viewer's zone; empty = never. */
  expires: string
  remaining: string
  refill: 'none' | 'daily' | 'monthly'
  refillAmount: string
  refillDay: string
  limit: string
  duration: string
  unit: Unit
  /** Separated by commas. */
  roles: string
  permissions: string
  /** JSON; empty = none. */
  meta: string
}

export const NEW_KEY: KeyFields = {
  name: '',
  prefix: '',
  externalId: '',
  environment: '',
  enabled: true,
  isRecoverable: false,
  expires: '',
  remaining: '',
  refill: 'none',
  refillAmount: '',
  refillDay: '1',
  limit: '',
  duration: '1',
  unit: 'min',
  roles: '',
  permissions: '',
  meta: '',
}

export function fieldsOf(key: KeyObject): KeyFields {
  const { refill, ratelimit } = key
  const duration = partsOfDuration(ratelimit?.duration ?? 60_000)
  return {
    ...NEW_KEY,
    name: key.name ?? '',
    externalId: key.identity?.externalId ?? '',
    environment: key.environment ?? '',
    enabled: key.enabled,
    expires: key.expires === undefined ? '' : localText(key.expires),
    remaining: key.remaining === undefined ? '' : String(key.remaining),
    refill: refill === undefined ? 'none' : refill.interval,
    refillAmount: refill === undefined ? '' : String(refill.amount),
    refillDay: String(refill?.refillDay ?? 1),
    limit: ratelimit === undefined ? '' : String(ratelimit.limit),
    duration: String(duration.count),
    unit: duration.unit,
    meta: key.meta === undefined ? '' : JSON.stringify(key.meta, null, 2),
  }
}

/** Fields of the form, as messages name them. */
export type Problems = Partial<Record<keyof KeyFields, string>>

type Input = Record<string, unknown>

/** What keys.createKey gets. Fields that cannot be read are in `problems`, and left out of `input`. */
export function createInput(apiId: string, fields: KeyFields): { input: Input; problems: Problems } {
  const problems: Problems = {}
  const read = readFields(fields, problems)
  const input: Input = { apiId }
  const put = (name: string, value: unknown) => {
    if (value !== null && value !== undefined && value !== '') input[name] = value
  }
  put('name', read.name)
  put('prefix', fields.prefix.trim())
  put('externalId', read.externalId)
  put('environment', fields.environment.trim())
  put('expires', read.expires)
  put('remaining', read.remaining)
  put('refill', read.refill)
  put('ratelimit', read.ratelimit)
  const [roles, permissions] = [listOf(fields.roles), listOf(fields.permissions)]
  put('roles', roles.length === 0 ? null : roles)
  put('permissions', permissions.length === 0 ? null : permissions)
  put('meta', read.meta)
  if (!fields.enabled) put('enabled', false)
  if (fields.isRecoverable) put('recoverable', true)
  return { input, problems }
}

/** What keys.updateKey gets: only what differs from the key; null clears a field. */
export function updateInput(key: KeyObject, fields: KeyFields): { input: Input; problems: Problems } {
  const problems: Problems = {}
  const [read, before] = [readFields(fields, problems), readFields(fieldsOf(key), {})]
  const input: Input = { keyId: key.id }
  for (const name of ['name', 'externalId', 'expires', 'remaining', 'refill', 'ratelimit', 'meta'] as const)
    if (JSON.stringify(read[name]) !== JSON.stringify(before[name])) input[name] = read[name]
  // What is shown to the minute stays what it was to the millisecond.
  if (fields.expires === fieldsOf(key).expires) delete input.expires
  if (fields.enabled !== key.enabled) input.enabled = fields.enabled
  return { input, problems }
}

/** Values as the API takes them; null = none. */
function readFields(fields: KeyFields, problems: Problems) {
  const whole = (
    field: 'remaining' | 'refillAmount' | 'refillDay' | 'limit' | 'duration',
    min: number,
  ): number | null => {
    const text = fields[field].replaceAll(/[\s\u202f_]/g, '')
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= min && Number.isSafeInteger(value)) return value
    problems[field] = `A whole number from ${min} on`
    return null
  }
  const remaining = fields.remaining.trim() === '' ? null : whole('remaining', 0)
  const amount = fields.refill === 'none' ? null : whole('refillAmount', 1)
  const day = fields.refill === 'monthly' ? whole('refillDay', 1) : null
  if (day !== null && day > 31) problems.refillDay = 'A day from 1 to 31'
  if (fields.refill !== 'none' && fields.remaining.trim() === '')
    problems.remaining = 'A refill needs credits to add to'
  const limit = fields.limit.trim() === '' ? null : whole('limit', 1)
  const count = fields.limit.trim() === '' ? null : whole('duration', 1)
  const expires = fields.expires === '' ? null : new Date(fields.expires).getTime()
  if (Number.isNaN(expires)) problems.expires = 'A date and a time'
  return {
    name: fields.name.trim() || null,
    externalId: fields.externalId.trim() || null,
    expires,
    remaining,
    refill:
      amount === null || fields.refill === 'none'
        ? null
        : { interval: fields.refill, amount, ...(day !== null && { refillDay: day }) },
    ratelimit:
      limit === null || count === null
        ? null
        : { limit, duration: count * (UNITS.find(({ value }) => value === fields.unit)?.ms ?? 1) },
    meta: metaOf(fields.meta, problems),
  }
}

function metaOf(text: string, problems: Problems): object | null {
  if (text.trim() === '') return null
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // said below
  }
  problems.meta = 'A JSON object, such as {"plan": "pro"}'
  return null
}

/** The entries of a text in which commas are between them. */
export const listOf = (text: string): string[] => [
  ...new Set(
    text
      .split(',')
      .map((each) => each.trim())
      .filter((each) => each !== ''),
  ),
]

/** As `datetime-local` has it, to the minute. */
function localText(at: number): string {
  const date = new Date(at)
  const two = (value: number) => String(value).padStart(2, '0')
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`
}

/** The field of the form that a message of the server is about: `ratelimit.duration: Number must be…`. */
export function fieldOfMessage(message: string): keyof KeyFields | null {
  const path = /^([A-Za-z.]+)(\.\d+)?:/.exec(message)?.[1] ?? ''
  return FIELDS[path] ?? FIELDS[path.split('.')[0] ?? ''] ?? null
}

const FIELDS: Readonly<Record<string, keyof KeyFields>> = {
  name: 'name',
  prefix: 'prefix',
  externalId: 'externalId',
  environment: 'environment',
  expires: 'expires',
  remaining: 'remaining',
  refill: 'refillAmount',
  'refill.refillDay': 'refillDay',
  ratelimit: 'limit',
  'ratelimit.duration': 'duration',
  roles: 'roles',
  permissions: 'permissions',
  meta: 'meta',
}
