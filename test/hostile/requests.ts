import type { TSchema } from '@sinclair/typebox'
import fc from 'fast-check'
import type { Endpoint } from '../../src/doors/http/endpoint.ts'

/**
 * Requests generated from an endpoint's schema. About a third are valid; the others have a change in the value, in the text
 * of the JSON, in the query string or in the headers.
 */

/** The key of a request. `operator` may create workspaces, `weak` holds one permission, `key` is not a root key. */
export const CALLERS = ['root', 'weak', 'key', 'none', 'operator'] as const
export type Caller = (typeof CALLERS)[number]

export type HostileRequest = {
  endpoint: Endpoint
  caller: Caller
  method: string
  /** Path and query string. */
  target: string
  contentType: string | null
  /** Null = no body. */
  body: string | Uint8Array<ArrayBuffer> | null
}

/** Existing texts, by the name of the field they fit: a request without existing names ends at the first look-up. */
export type Pool = Readonly<Record<string, readonly string[]>>

/**
 * A placeholder in a pool for a text that is known only later: `fillIn` inserts it. None of its characters is encoded in a
 * query.
 */
export const later = (name: string) => `${LATER}${name}~~`
const LATER = '~~'

/** The request with every {@link later} replaced. */
export function fillIn(request: HostileRequest, texts: Readonly<Record<string, string>>): HostileRequest {
  const fill = (text: string) => text.replaceAll(/~~([\w.]+)~~/g, (all, name: string) => texts[name] ?? all)
  const { target, body } = request
  return { ...request, target: fill(target), body: typeof body === 'string' ? fill(body) : body }
}

/** JSON text that no JavaScript value produces. */
class Raw {
  constructor(readonly text: string) {}
}

/** A request to any of the endpoints. */
export function requestsTo(endpoints: readonly Endpoint[], pool: Pool): fc.Arbitrary<HostileRequest> {
  const source = { pool, strangers: strangersAmong(endpoints) }
  return fc.oneof(
    ...endpoints.map((endpoint) => ({
      arbitrary: requestTo(endpoint, source),
      // Rare, because later requests do not find deleted things, and keys that were rerolled end.
      weight: /\.(delete|erase|reroll)/.test(endpoint.path) ? 1 : 8,
    })),
  )
}

/** Sources of generated values. */
export type Source = {
  pool: Pool
  /** Names of fields that similar objects have and that this schema does not know. */
  strangers: (schema: TSchema) => readonly string[]
}

/**
 * Fields of all endpoints' objects: code shared by endpoints may read a field that one endpoint's schema does not know and
 * has not checked.
 * @returns names, more often from objects that resemble the wanted one.
 */
function strangersAmong(endpoints: readonly Endpoint[]): Source['strangers'] {
  const lists = endpoints.flatMap(({ input }) => fieldListsOf(input))
  return ({ properties }) =>
    lists.flatMap((list) => {
      const known = list.filter((name) => Object.hasOwn(properties, name)).length
      const strange = list.filter((name) => !Object.hasOwn(properties, name))
      return Array.from({ length: known ** 2 }, () => strange).flat()
    })
}

/** The names of the fields of each object in a schema. */
function fieldListsOf(schema: TSchema): string[][] {
  const fields = Object.entries<TSchema>(schema.properties ?? {})
  const inner = [...fields.map(([, field]) => field), ...(schema.anyOf ?? []), ...[schema.items ?? []].flat()]
  return [fields.map(([name]) => name), ...inner.flatMap(fieldListsOf)]
}

function requestTo(endpoint: Endpoint, source: Source): fc.Arbitrary<HostileRequest> {
  const caller = fc.oneof(
    { arbitrary: fc.constant<Caller>('root'), weight: 14 },
    { arbitrary: fc.constant<Caller>('weak'), weight: 3 },
    { arbitrary: fc.constant<Caller>('key'), weight: 1 },
    { arbitrary: fc.constant<Caller>('none'), weight: 2 },
    { arbitrary: fc.constant<Caller>('operator'), weight: 1 },
  )
  const value = mutated(arbitraryOf(endpoint.input, source, ''), source.pool)
  return endpoint.method === 'GET' ? queryTo(endpoint, caller, value) : bodyTo(endpoint, caller, value)
}

function bodyTo(
  endpoint: Endpoint,
  caller: fc.Arbitrary<Caller>,
  value: fc.Arbitrary<unknown>,
): fc.Arbitrary<HostileRequest> {
  const text = value.map(render)
  const body = fc.oneof(
    { arbitrary: text, weight: 40 },
    { arbitrary: garbled(text), weight: 4 },
    { arbitrary: fc.constantFrom(...BODIES), weight: 2 },
    { arbitrary: fc.uint8Array({ maxLength: 64 }), weight: 1 },
    { arbitrary: fc.constant(null), weight: 1 },
  )
  const contentType = fc.oneof(
    { arbitrary: fc.constant('application/json'), weight: 30 },
    { arbitrary: fc.constantFrom(...CONTENT_TYPES), weight: 2 },
  )
  const suffix = fc.oneof(
    { arbitrary: fc.constant(''), weight: 30 },
    { arbitrary: fc.constantFrom('?pretty', '?a=%00', '?%ff=%ed%a0%80', '?', '?__proto__=1'), weight: 1 },
  )
  return fc.record({ caller, body, contentType, suffix }).map(({ suffix: query, ...request }) => ({
    endpoint,
    method: 'POST',
    target: endpoint.path + query,
    ...request,
  }))
}

function queryTo(
  endpoint: Endpoint,
  caller: fc.Arbitrary<Caller>,
  value: fc.Arbitrary<unknown>,
): fc.Arbitrary<HostileRequest> {
  const extra = fc.oneof(
    { arbitrary: fc.constant(''), weight: 20 },
    { arbitrary: fc.constantFrom(...QUERY_PARTS), weight: 5 },
  )
  const method = fc.oneof(
    { arbitrary: fc.constant('GET'), weight: 30 },
    { arbitrary: fc.constantFrom('POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS'), weight: 1 },
  )
  return fc
    .record({ caller, value, extra, method })
    .map(({ caller: who, value: query, extra: part, method: verb }) => ({
      endpoint,
      caller: who,
      method: verb,
      target: `${endpoint.path}?${[queryOf(query), part].filter((each) => each !== '').join('&')}`,
      contentType: null,
      body: null,
    }))
}

/** A query string as a client builds it; objects become the text of `String`. */
function queryOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) return encodeURIComponent(wellFormed(textOf(value)))
  return Object.entries(value)
    .flatMap(([name, each]) =>
      Array.isArray(each) ? each.map((one) => [name, one] as const) : [[name, each] as const],
    )
    .map(
      ([name, each]) =>
        `${encodeURIComponent(wellFormed(name))}=${encodeURIComponent(wellFormed(textOf(each)))}`,
    )
    .join('&')
    .slice(0, QUERY_CHARACTERS_MAX)
}

/** Longer ones only test the parser of heads. */
const QUERY_CHARACTERS_MAX = 4000
const wellFormed = (text: string) => text.toWellFormed()

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  return value instanceof Raw ? value.text.slice(0, 200) : (render(value) ?? '')
}

/** A value of the schema: bounds, existing names and typical input; long lists are rare. */
export function arbitraryOf(schema: TSchema, source: Source, name: string): fc.Arbitrary<unknown> {
  if (schema.const !== undefined) return fc.constant(schema.const)
  if (schema.anyOf !== undefined)
    return fc.oneof(...schema.anyOf.map((each: TSchema) => arbitraryOf(each, source, name)))
  switch (schema.type) {
    case 'object':
      return schema.properties === undefined ? META : objectOf(schema, source)
    case 'array':
      return listOf(schema, source, name)
    case 'string':
      return textOfSchema(schema, source.pool, name)
    case 'integer':
      return integerOf(schema)
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    default:
      return fc.oneof(PERMISSION_QUERY, ANY_JSON)
  }
}

function objectOf(schema: TSchema, source: Source): fc.Arbitrary<unknown> {
  const required: string[] = schema.required ?? []
  const fields = Object.entries<TSchema>(schema.properties).map(([name, property]) => {
    const value = arbitraryOf(property, source, name).map((each) => ({ [name]: each }))
    const absent = { arbitrary: fc.constant({}), weight: 2 }
    return required.includes(name) ? value : fc.oneof(absent, { arbitrary: value, weight: 1 })
  })
  const known = fc.tuple(...fields).map((parts) => Object.assign({}, ...parts))
  const strangers = source.strangers(schema)
  if (strangers.length === 0) return known
  const strange = fc
    .tuple(fc.constantFrom(...strangers), fc.oneof(fc.constantFrom(...HOSTILE), ANY_JSON))
    .map(([name, each]) => ({ [name]: each }))
  return fc.oneof(
    { arbitrary: known, weight: 3 },
    { arbitrary: fc.tuple(strange, known).map((parts) => Object.assign({}, ...parts)), weight: 1 },
  )
}

function listOf(schema: TSchema, source: Source, name: string): fc.Arbitrary<unknown[]> {
  const { minItems = 0, maxItems = 100 } = schema
  const item = arbitraryOf(schema.items, source, name)
  const atBound = item.map((one) => Array.from({ length: maxItems }, () => one))
  return fc.oneof(
    { arbitrary: fc.array(item, { minLength: minItems, maxLength: minItems + 3 }), weight: 60 },
    { arbitrary: atBound, weight: 1 },
  )
}

function textOfSchema(schema: TSchema, pool: Pool, name: string): fc.Arbitrary<string> {
  const { minLength = 0, maxLength = 256, pattern } = schema
  const fits = (text: string) => text.length >= minLength && text.length <= maxLength
  if (typeof pattern === 'string') {
    const matching = fc.stringMatching(new RegExp(pattern))
    const known = (pool[name] ?? []).filter((text) => text.startsWith(LATER) || RegExp(pattern).test(text))
    return known.length === 0
      ? matching
      : fc.oneof({ arbitrary: fc.constantFrom(...known), weight: 4 }, { arbitrary: matching, weight: 1 })
  }
  const known = (pool[name] ?? []).filter(fits)
  const length = { minLength, maxLength: Math.min(maxLength, minLength + 12) }
  return fc.oneof(
    ...(known.length === 0 ? [] : [{ arbitrary: fc.constantFrom(...known), weight: 12 }]),
    { arbitrary: fc.string({ ...length, unit: 'grapheme-ascii' }), weight: 3 },
    {
      arbitrary: fc.string({ ...length, unit: 'binary' }).map((text) => text.slice(0, maxLength)),
      weight: 1,
    },
    { arbitrary: fc.constantFrom(...TEXTS.filter(fits)), weight: 2 },
    { arbitrary: fc.constantFrom(minLength, maxLength).map((size) => 'é'.repeat(size)), weight: 1 },
  )
}

function integerOf({ minimum, exclusiveMinimum, maximum }: TSchema): fc.Arbitrary<number> {
  const least = minimum ?? (exclusiveMinimum ?? -1) + 1
  const greatest = maximum ?? Number.MAX_SAFE_INTEGER
  return fc.oneof(
    { arbitrary: fc.constantFrom(least, greatest, Math.min(greatest, Math.max(least, 1))), weight: 1 },
    { arbitrary: fc.integer({ min: least, max: Math.min(greatest, least + 100) }), weight: 3 },
    { arbitrary: fc.maxSafeInteger().map((n) => least + (Math.abs(n) % (greatest - least + 1))), weight: 1 },
  )
}

const ANY_JSON = fc.jsonValue({ maxDepth: 3 })

const META = fc.dictionary(fc.string({ maxLength: 8 }), ANY_JSON, {
  maxKeys: 3,
  noNullPrototype: true,
})

const PERMISSION_QUERY = fc.letrec((tie) => ({
  query: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom('a.permission', 'nobody.has.this', '', '*'),
    fc.record({ and: fc.array(tie('query'), { maxLength: 3 }) }),
    fc.record({ or: fc.array(tie('query'), { maxLength: 3 }) }),
  ),
})).query

/** The value with no, one or two changes. */
function mutated(value: fc.Arbitrary<unknown>, pool: Pool): fc.Arbitrary<unknown> {
  const change = fc.record({
    kind: fc.constantFrom('replace', 'replace', 'remove', 'add', 'double', 'swap'),
    at: fc.nat(),
    with: fc.oneof(
      { arbitrary: fc.constantFrom(...HOSTILE), weight: 8 },
      { arbitrary: fc.constantFrom(...Object.values(pool).flat(), 'x'), weight: 1 },
      { arbitrary: ANY_JSON, weight: 2 },
    ),
  })
  const changes = fc.oneof(
    { arbitrary: fc.constant([]), weight: 1 },
    { arbitrary: fc.array(change, { minLength: 1, maxLength: 2 }), weight: 1 },
  )
  return fc.tuple(value, changes).map(([made, list]) => list.reduce<unknown>(apply, made))
}

type Change = { kind: string; at: number; with: unknown }

function apply(value: unknown, { kind, at, with: other }: Change): unknown {
  const places = placesIn(value)
  const place = places[at % (places.length + 1)]
  if (place === undefined) return kind === 'replace' ? other : addTo(value, other)
  const [holder, name] = place
  const copy = structuredCloneWithRaw(value)
  const target = resolve(copy, holder)
  switch (kind) {
    case 'remove':
      if (Array.isArray(target)) target.splice(Number(name), 1)
      else delete target[name]
      return copy
    case 'add':
      if (Array.isArray(target)) target.push(other)
      else target[`${name}x`] = other
      return copy
    case 'double':
      // Of two fields with one name the last counts, in JavaScript as in Postgres; some proxies take the first.
      if (Array.isArray(target)) target.push(target[0])
      else target[`${DOUBLED}${name}`] = other
      return copy
    case 'swap': {
      const names = Object.keys(target)
      const second = names[at % names.length] ?? name
      ;[target[name], target[second]] = [target[second], target[name]]
      return copy
    }
    default:
      target[name] = other
      return copy
  }
}

type Holder = Record<string, unknown>
type Place = [holder: string[], name: string]

function placesIn(value: unknown, path: string[] = []): Place[] {
  if (typeof value !== 'object' || value === null || value instanceof Raw) return []
  // The first elements of a long list are enough.
  return Object.keys(value)
    .slice(0, 20)
    .flatMap((name): Place[] => [[path, name], ...placesIn((value as Holder)[name], [...path, name])]) // an object, see above
}

function resolve(value: unknown, path: string[]): Holder {
  return path.reduce<Holder>((holder, name) => holder[name] as Holder, value as Holder) // paths of placesIn lead through objects
}

function structuredCloneWithRaw(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Raw) return value
  if (Array.isArray(value)) return value.map(structuredCloneWithRaw)
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, structuredCloneWithRaw(each)]))
}

const addTo = (value: unknown, other: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Raw)
    ? { ...value, [`${PROTO}`]: other }
    : [value, other]

/** Precedes a name that is repeated in the text, and the name `__proto__`, which no object literal can have. */
const DOUBLED = '\u0001double:'
const PROTO = '\u0001proto'

function render(value: unknown): string {
  if (value instanceof Raw) return value.text
  if (Array.isArray(value)) return `[${value.map(render).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const fields = Object.entries(value).map(([name, each]) => {
    const shown = name.startsWith(DOUBLED) ? name.slice(DOUBLED.length) : name === PROTO ? '__proto__' : name
    return `${JSON.stringify(shown)}:${render(each)}`
  })
  return `{${fields.join(',')}}`
}

/** JSON text with a part removed, added or changed. It may still be well-formed. */
function garbled(text: fc.Arbitrary<string | null>): fc.Arbitrary<string> {
  return fc
    .tuple(
      text,
      fc.constantFrom('cut', 'put', 'change', 'twice', 'bom'),
      fc.nat(),
      fc.string({ maxLength: 3 }),
    )
    .map(([made, kind, at, part]) => {
      const json = made ?? ''
      const place = at % (json.length + 1)
      if (kind === 'cut') return json.slice(0, place)
      if (kind === 'twice') return json + json
      if (kind === 'bom') return `\ufeff${json}`
      return json.slice(0, place) + part + json.slice(kind === 'put' ? place : place + 1)
    })
}

const deep = (open: string, close: string, levels: number) => open.repeat(levels) + close.repeat(levels)

/** Bodies that no schema generates. */
const BODIES = [
  '',
  'null',
  'true',
  '0',
  '""',
  '[]',
  '{}',
  '[[]]',
  '[{}]',
  '{"__proto__":{"isAdmin":true}}',
  '{"constructor":{"prototype":{"isAdmin":true}}}',
  '\0',
  '{"a":1}\n{"a":2}',
  'undefined',
  'NaN',
  "{'a':1}",
  deep('[', ']', 100),
  deep('[', ']', 20_000),
  deep('{"a":', '}', 3000).replace(/:}/, ':1}'),
  `{"name":"${'a'.repeat(200_000)}"}`,
  `{"meta":{"a":"${'\\u0041'.repeat(20_000)}"}}`,
]

/** Replaces any value. */
const HOSTILE: unknown[] = [
  ...[
    '1e309',
    '-1e309',
    '-0',
    '-0.0',
    '0.1',
    '1e21',
    '1E+2',
    '9007199254740993',
    '2147483648',
    '-2147483649',
  ],
  ...['123456789012345678901234567890', '1.0', '5e-324', '0.1e1'],
  ...['"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udfff\\ud800"', '"\\ud83d"', '"\\uFFFF"', '"\\/"'],
  ...[
    '{"__proto__":{"a":1}}',
    '{"a":1,"a":2}',
    '{"":1}',
    '{"\\u0000":1}',
    '{"\\ud800":1}',
    '{"constructor":1}',
  ],
  ...['{"and":[]}', '{"or":[]}', '{"and":"a","or":"b"}', '{"length":-1}', '{"toString":null}', '{"then":1}'],
  ...['null', 'true', 'false', '[]', '{}', '[null]', '[[]]', '[{}]', '""', '" "', '"0"', '"true"', '"null"'],
  deep('[', ']', 70),
  deep('{"or":[', ']}', 40),
  deep('{"and":[', ']}', 500),
  `[${Array.from({ length: 1001 }, (_, i) => `"r${i}"`).join(',')}]`,
  `{${Array.from({ length: 500 }, (_, i) => `"f${i}":${i}`).join(',')}}`,
  JSON.stringify('a'.repeat(257)),
  JSON.stringify('a'.repeat(5000)),
  JSON.stringify('😀'.repeat(300)),
].map((text) => (typeof text === 'string' ? new Raw(text) : text))

/** Texts with a meaning for some program. */
const TEXTS = [
  "' or 1=1 --",
  '"; drop table keys; --',
  '$1',
  '%s%n',
  '../../../etc/passwd',
  '*',
  '**',
  'a*b*c*',
  '\\',
  '{}',
  '\n',
  '\r\nX-Injected: 1',
  '\u202egnp',
  'İ',
  'ß',
  '\u0301',
  '__proto__',
  'constructor',
  'toString',
  'null',
  'undefined',
  'NaN',
  'default',
  '0',
  ' ',
]

const CONTENT_TYPES = [
  null,
  '',
  'text/plain',
  'application/x-www-form-urlencoded',
  'application/json; charset=utf-16',
  'application/json;',
  'APPLICATION/JSON',
  'application/vnd.api+json',
  'application/jsonx',
  'multipart/form-data; boundary=x',
  'application/json, text/plain',
]

/** Added to a query string. */
const QUERY_PARTS = [
  ...[
    'limit=0',
    'limit=101',
    'limit=1e309',
    'limit=-0',
    'limit=0x10',
    'limit=5&limit=6',
    'limit[]=5',
    'limit=',
  ],
  ...['limit=NaN', 'limit=1e2', 'limit=+5', 'limit=%205%20', 'limit=null', 'limit=9007199254740993'],
  ...['cursor=%00', 'cursor=%ff', 'cursor=%ed%a0%80', 'cursor=%', 'cursor=&cursor=', 'cursor=null'],
  ...[
    'pretty',
    'pretty=1',
    '__proto__=1',
    'constructor=1',
    '&&&',
    '=',
    '%3D',
    'a=b=c',
    'start=-1',
    'start=0&end=0',
  ],
  ...[
    'start=8640000000000000',
    'end=1e15',
    'start=5&end=1',
    'groupBy=hour',
    'groupBy=tag,tags',
    'orderBy=time',
  ],
  ...['groupBy=hour&start=0', 'groupBy=month&start=0&limit=9007199254740991', 'decrypt=true', 'decrypt=2'],
  ...[
    'tag=',
    'keyId=,,,',
    'keyId=%2C',
    'order=desc',
    'environment=',
    'event=key.create',
    'ratelimit=x,limit=1e9',
  ],
  `cursor=${'a'.repeat(257)}`,
  `keyId=${'a,'.repeat(1500)}`,
]
