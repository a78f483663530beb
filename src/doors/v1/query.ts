import { KindGuard, type TSchema } from '@sinclair/typebox'
import { badRequest } from '../../errors.ts'
import { unstorableText } from '../../lib/json.ts'

/**
 * Converts a query string by its schema: numbers from text (an empty text is 0); booleans from `true` and `1`, or `false`,
 * `0` and the empty text; lists from repeated parameters. Text that does not convert stays, and the schema check refuses
 * it. Unknown parameters are dropped, unless the schema forbids them.
 * @throws ApiError BAD_REQUEST for text that no field may contain, and for parameters that the schema forbids.
 */
export function readQuery(schema: TSchema, search: URLSearchParams): Record<string, unknown> {
  if (!KindGuard.IsObject(schema)) throw new Error('a query schema must be an object')
  if (schema.additionalProperties === false)
    for (const name of search.keys())
      if (!Object.hasOwn(schema.properties, name)) throw badRequest(`${name}: Unrecognized parameter`)
  const query: Record<string, unknown> = {}
  for (const [name, property] of Object.entries(schema.properties)) {
    const texts = search.getAll(name)
    if (texts.length === 0) continue
    for (const text of texts) {
      const reason = unstorableText(text)
      if (reason !== null) throw badRequest(`${name}: ${reason}`)
    }
    if (isList(property)) query[name] = texts
    else query[name] = texts.length === 1 ? convert(property, texts[0] as string) : texts // it has one element
  }
  return query
}

const isList = (schema: TSchema): boolean => schema.type === 'array'

function convert(schema: TSchema, text: string): unknown {
  if (text === 'null' && (schema.anyOf ?? []).some((option: TSchema) => option.type === 'null')) return null
  switch (kindOf(schema)) {
    case 'number':
      return toNumber(text)
    case 'boolean':
      return BOOLEANS[text] ?? text
    default:
      return text
  }
}

/** Also reads `T | null`, the type of optional numbers where the specification allows null. */
function kindOf(schema: TSchema): 'number' | 'boolean' | 'text' {
  const types: unknown[] = [schema.type, ...(schema.anyOf ?? []).map((option: TSchema) => option.type)]
  if (types.includes('integer') || types.includes('number')) return 'number'
  return types.includes('boolean') ? 'boolean' : 'text'
}

const BOOLEANS: Record<string, boolean> = { true: true, '1': true, false: false, '0': false, '': false }

function toNumber(text: string): number {
  return /^\s*$/.test(text)
    ? 0
    : /^[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?$/i.test(text)
      ? Number(text)
      : Number.NaN
}
