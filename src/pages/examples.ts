import type { JsonSchema } from './json-schema.ts'

/**
 * Example values for the reference of one API. Examples are made from the schemas so that they stay up to date. A value is
 * looked up by the field's name, first together with its parent or its method.
 */
export type Samples = {
  /** By `method:field`, `parent.field`, `group:field` or `field`: the first one found is used. */
  readonly values: Readonly<Record<string, unknown>>
  /** Requests whose required fields say too little, or are not everything that must be sent. By method. */
  readonly requests: Readonly<Record<string, unknown>>
}

/**
 * A request body to copy: the required fields, and the fields that show the method's purpose.
 * @param method `keys.createKey`
 */
export const requestExample = (samples: Samples, method: string, schema: JsonSchema): unknown =>
  samples.requests[method] ?? sampleOf(schema, { samples, method, of: 'request', within: '', name: '' })

/** An answer with every field that is not deprecated, as on the last page of a list. */
export const replyExample = (samples: Samples, method: string, schema: JsonSchema): unknown =>
  sampleOf(schema, { samples, method, of: 'reply', within: '', name: '' })

type Place = {
  samples: Samples
  method: string
  of: 'request' | 'reply'
  /** Name of the parent field; empty at the top. */
  within: string
  /** The field's name; elements of a list have the list's name. */
  name: string
}

function sampleOf(schema: JsonSchema, place: Place): unknown {
  const known = knownSample(place)
  if (known !== undefined) return schema.type === 'array' && !Array.isArray(known) ? [known] : known
  const [first] = schema.enum ?? []
  if (first !== undefined) return first
  if (schema.const !== undefined) return schema.const
  if (schema.anyOf !== undefined) return sampleOf(schema.anyOf[0] ?? {}, place)
  switch (schema.type) {
    case 'object':
      return Object.fromEntries(
        Object.entries(schema.properties ?? {})
          .filter(
            ([field, { deprecated }]) =>
              (schema.required ?? []).includes(field) ||
              (place.of === 'reply' && deprecated !== true && field !== 'cursor'),
          )
          .map(([field, property]) => [
            field,
            sampleOf(property, { ...place, within: place.name, name: field }),
          ]),
      )
    case 'array':
      return schema.items === undefined ? [] : [sampleOf(schema.items, place)]
    case 'integer':
      return schema.minimum ?? 1
    case 'boolean':
      return true
    default:
      return place.name
  }
}

function knownSample({ samples: { values }, method, within, name }: Place): unknown {
  const [group] = method.split('.')
  for (const key of [`${method}:${name}`, `${within}.${name}`, `${group}:${name}`, name])
    if (Object.hasOwn(values, key)) return values[key]
  return undefined
}
