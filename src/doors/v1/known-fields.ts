import { KindGuard, type TSchema } from '@sinclair/typebox'

/**
 * What a schema knows of the values it accepts: of every object whose fields it lists, these fields alone, in the order in
 * which they came. The v1 API drops the others silently; and what endpoints share may read a field that this one's schema
 * does not have, and so has not checked.
 *
 * Refused: TypeBox's `Value.Clean`, which changes what it is given, walks the schema again for every value, and checks
 * every value against each option of a union.
 * @returns a function for values that have passed the check; it leaves them as they are.
 * @throws Error for a schema of which this cannot be said, such as a union of two objects.
 */
export function knownFieldsOf(schema: TSchema): (value: unknown) => unknown {
  return readerOf(schema) ?? ((value) => value)
}

type Reader = (value: unknown) => unknown

/** @returns null where all of a value is known: nothing need be read. */
function readerOf(schema: TSchema): Reader | null {
  if (isScalar(schema) || KindGuard.IsUnknown(schema)) return null
  if (KindGuard.IsObject(schema) && (schema.additionalProperties ?? false) === false)
    return readerOfFields(schema.properties)
  if (KindGuard.IsArray(schema)) {
    const read = readerOf(schema.items)
    return read === null ? null : (value) => (value as unknown[]).map((each) => read(each)) // checked to be one
  }
  if (KindGuard.IsUnion(schema)) {
    const [option, another] = schema.anyOf.filter((each) => !isScalar(each))
    if (option === undefined) return null
    if (another === undefined) {
      const read = readerOf(option)
      return read === null ? null : (value) => (isScalarValue(value) ? value : read(value))
    }
  }
  // Free-form: `meta` keeps whatever it holds.
  if (KindGuard.IsRecord(schema) && Object.values(schema.patternProperties).every(KindGuard.IsUnknown))
    return null
  throw new Error('which fields of a value this schema knows cannot be said')
}

function readerOfFields(properties: Record<string, TSchema>): Reader {
  const readers = new Map(Object.entries(properties).map(([name, field]) => [name, readerOf(field)]))
  return (value) => {
    const fields = value as object // checked to be one
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
