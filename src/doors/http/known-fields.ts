import { KindGuard, type TSchema } from '@sinclair/typebox'

/**
 * Makes a function that removes fields unknown to the schema, at every depth, and keeps the order of the rest. The v1 API
 * ignores unknown fields, and code shared by endpoints must not read a field that this endpoint's schema has not checked.
 *
 * Not TypeBox's `Value.Clean`: it changes its argument, walks the schema again for every value, and checks every value
 * against each option of a union.
 * @returns a function for values that passed the check. It returns a copy where it removes anything.
 * @throws Error for a schema whose known fields are not clear, such as a union of two objects.
 */
export function knownFieldsOf(schema: TSchema): (value: unknown) => unknown {
  return readerOf(schema) ?? ((value) => value)
}

type Reader = (value: unknown) => unknown

/** @returns null when no field of the value can be unknown: nothing has to be read. */
function readerOf(schema: TSchema): Reader | null {
  if (isScalar(schema) || KindGuard.IsUnknown(schema)) return null
  if (KindGuard.IsObject(schema) && (schema.additionalProperties ?? false) === false)
    return readerOfFields(schema.properties)
  if (KindGuard.IsArray(schema)) {
    const read = readerOf(schema.items)
    return read === null ? null : (value) => (value as unknown[]).map((each) => read(each)) // the check made sure that it is a list
  }
  if (KindGuard.IsUnion(schema)) {
    const [option, another] = schema.anyOf.filter((each) => !isScalar(each))
    if (option === undefined) return null
    if (another === undefined) {
      const read = readerOf(option)
      return read === null ? null : (value) => (isScalarValue(value) ? value : read(value))
    }
  }
  // Free-form: `meta` keeps all its fields.
  if (KindGuard.IsRecord(schema) && Object.values(schema.patternProperties).every(KindGuard.IsUnknown))
    return null
  throw new Error('which fields of a value this schema knows cannot be said')
}

function readerOfFields(properties: Record<string, TSchema>): Reader {
  const readers = new Map(Object.entries(properties).map(([name, field]) => [name, readerOf(field)]))
  return (value) => {
    const fields = value as object // the check made sure that it is an object
    const known: Record<string, unknown> = {}
    for (const [name, field] of Object.entries(fields)) {
      const read = readers.get(name)
      if (read !== undefined) known[name] = read === null ? field : read(field)
    }
    return known
  }
}

const SCALARS = ['string', 'integer', 'number', 'boolean', 'null']
const isScalar = ({ type }: TSchema): boolean => SCALARS.includes(type)
const isScalarValue = (value: unknown): boolean => typeof value !== 'object' || value === null
