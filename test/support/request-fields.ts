import type { TSchema } from '@sinclair/typebox'

/** The place of a field in a request, and its schema. */
export type Site = { path: string[]; schema: TSchema; isNullable: boolean; isOptional: boolean }

/** Every field of a request at every depth; of a list, those of its first element. */
export function sitesOf(schema: TSchema, path: string[] = [], isOptional = false): Site[] {
  const options: TSchema[] = schema.anyOf ?? [schema]
  const isNullable = options.some(({ type }) => type === 'null')
  const others = options.filter(({ type }) => type !== 'null')
  const [only] = others
  const inner = others.length === 1 && only !== undefined ? only : schema
  const here: Site = { path, schema: inner, isNullable, isOptional: isOptional || path.length === 0 }
  if (inner.type === 'array') return [here, ...sitesOf(inner.items, [...path, '0'], true)]
  const required: string[] = inner.required ?? []
  const children = Object.entries<TSchema>(inner.properties ?? {}).flatMap(([name, property]) =>
    sitesOf(property, [...path, name], !required.includes(name)),
  )
  return path.length === 0 && inner.type === 'object' ? children : [here, ...children]
}

/** The smallest value of a schema. */
export function sampleOf(schema: TSchema): unknown {
  if (schema.const !== undefined) return schema.const
  if (schema.anyOf !== undefined) return sampleOf(schema.anyOf[0])
  switch (schema.type) {
    case 'object':
      return Object.fromEntries(
        (schema.required ?? []).map((name: string) => [name, sampleOf(schema.properties[name])]),
      )
    case 'array':
      return Array.from({ length: schema.minItems ?? 0 }, () => sampleOf(schema.items))
    case 'string':
      return 'a'.repeat(schema.minLength ?? 1)
    case 'boolean':
      return false
    case 'integer':
      return Math.max(schema.minimum ?? (schema.exclusiveMinimum ?? -1) + 1, 0)
    default:
      return {}
  }
}

/** The smallest request with `value` at `path`. */
export function requestWith(schema: TSchema, path: string[], value: unknown): unknown {
  const [name, ...rest] = path
  if (name === undefined) return value
  const options: TSchema[] = schema.anyOf ?? [schema]
  const inner = options.find(({ type }) => type === 'object' || type === 'array') ?? schema
  if (inner.type === 'array') return [requestWith(inner.items, rest, value)]
  return { ...Object(sampleOf(inner)), [name]: requestWith(inner.properties[name], rest, value) }
}
