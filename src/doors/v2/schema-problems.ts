import { KindGuard, type TSchema } from '@sinclair/typebox'
import { type ValueError, ValueErrorType } from '@sinclair/typebox/errors'
import { shown } from '../../lib/cut-text.ts'
import type { ErrorDetail } from './errors.ts'

/**
 * What is wrong with a body, in the words and places of a JSON Schema validator: `minLength: got 2, want 3` at
 * `/properties/name/minLength`, a pointer into the schema. Only the first problems are looked at and listed: one body can
 * have half a million.
 */
export function schemaProblems(schema: TSchema, errors: Iterable<ValueError>): ErrorDetail[] {
  const details = new Map<string, ErrorDetail>()
  /** Missing and additional fields of one object are one problem each. */
  const fields = new Map<string, string[]>()
  let looked = 0
  for (const error of withoutUnions(errors)) {
    if (details.size >= DETAILS_MAX || ++looked > PROBLEMS_MAX) break
    const { type, path } = error
    const isMissing = type === ValueErrorType.ObjectRequiredProperty
    if (isMissing || type === ValueErrorType.ObjectAdditionalProperties) {
      const cut = path.lastIndexOf('/')
      const keyword = isMissing ? 'required' : 'additionalProperties'
      const location = `${locationOf(schema, path.slice(0, cut))}/${keyword}`
      const names = fields.get(path.slice(0, cut) + location) ?? []
      fields.set(path.slice(0, cut) + location, names)
      if (names.length < NAMES_MAX) names.push(`'${shown(unescapePointer(path.slice(cut + 1)))}'`)
      const noun = names.length === 1 ? 'property' : 'properties'
      const listed = names.join(', ')
      const message = isMissing ? `missing ${noun} ${listed}` : `additional properties ${listed} not allowed`
      details.set(path.slice(0, cut) + location, { message, location })
      continue
    }
    if (error.value === undefined) continue // the field is missing, which has an error of its own
    const { keyword, message } = problemOf(error)
    const location = `${locationOf(schema, path)}/${keyword}`
    if (!details.has(path + location)) details.set(path + location, { message, location })
  }
  return [...details.values()]
}

/**
 * True when nothing is wrong but the length of texts, and those are short enough in Unicode code points, which the API
 * counts. The compiled check counts UTF-16 units, so a text of emoji may be refused by it wrongly.
 */
export function onlyLongInUnits(errors: Iterable<ValueError>): boolean {
  let looked = 0
  for (const error of errors) {
    const { type, value, schema } = error
    if (++looked > PROBLEMS_MAX) return false
    if (type === ValueErrorType.Union && insideNullable(error)?.every(isLongOnly)) continue
    if (!isLongOnly({ type, value, schema })) return false
  }
  return looked > 0
}

const isLongOnly = ({ type, value, schema }: Pick<ValueError, 'type' | 'value' | 'schema'>): boolean =>
  type === ValueErrorType.StringMaxLength &&
  // Half of the units would be too many already: not counted, so that a long text costs nothing.
  String(value).length <= 2 * schema.maxLength &&
  lengthOf(String(value)) <= schema.maxLength

/** In place of the problem of a value that may be null, those that it has with the other type. */
function* withoutUnions(errors: Iterable<ValueError>): Iterable<ValueError> {
  for (const error of errors) {
    const inside = error.type === ValueErrorType.Union ? insideNullable(error) : null
    if (inside === null) yield error
    else yield* withoutUnions(inside)
  }
}

type FoundProblem = { keyword: string; message: string }

function problemOf(error: ValueError): FoundProblem {
  const { schema, value } = error
  const problem = (keyword: string, message: string): FoundProblem => ({ keyword, message })
  const bound = (keyword: string, got: number | string): FoundProblem =>
    problem(keyword, `${keyword}: got ${got}, want ${schema[keyword]}`)
  switch (error.type) {
    case ValueErrorType.StringMinLength:
      return bound('minLength', lengthOf(String(value)))
    case ValueErrorType.StringMaxLength:
      return bound('maxLength', lengthOf(String(value)))
    case ValueErrorType.ArrayMinItems:
      return bound('minItems', (value as unknown[]).length) // the error is of a list
    case ValueErrorType.ArrayMaxItems:
      return bound('maxItems', (value as unknown[]).length) // as above
    case ValueErrorType.ObjectMaxProperties:
      return bound('maxProperties', Object.keys(value as object).length) // the error is of an object
    case ValueErrorType.IntegerMinimum:
    case ValueErrorType.NumberMinimum:
      return bound('minimum', String(value))
    case ValueErrorType.IntegerMaximum:
    case ValueErrorType.NumberMaximum:
      return bound('maximum', String(value))
    case ValueErrorType.StringPattern:
      return problem('pattern', `'${shown(String(value))}' does not match pattern '${schema.pattern}'`)
    case ValueErrorType.Union: {
      const literals = constants(schema)
      return literals.length > 0
        ? problem('enum', `value must be one of ${literals.join(', ')}`)
        : problem('type', `got ${kindOf(value)}, want ${namesOf(schema).join(' or ')}`)
    }
    case ValueErrorType.Literal:
      return problem('enum', `value must be one of '${schema.const}'`)
    default:
      return problem('type', `got ${kindOf(value)}, want ${namesOf(schema).join(' or ')}`)
  }
}

/** Problems of the other option of a value that may be null; null = it has the wrong type altogether. */
function insideNullable({ schema, value, errors }: ValueError): ValueError[] | null {
  const options = optionsOf(schema)
  const index = options.findIndex(({ type }) => type !== 'null')
  const option = options[index]
  if (option === undefined || options.length !== 2 || constants(schema).length > 0) return null
  if (option.type !== kindOf(value) && !(option.type === 'integer' && kindOf(value) === 'number')) return null
  const inside: ValueError[] = []
  for (const error of errors[index] ?? []) if (inside.push(error) === DETAILS_MAX) break
  return inside.length === 0 ? null : inside
}

const optionsOf = (schema: TSchema): TSchema[] => schema.anyOf ?? []

const constants = (schema: TSchema): string[] =>
  optionsOf(schema).flatMap((option) => (option.const === undefined ? [] : [`'${option.const}'`]))

const namesOf = (schema: TSchema): string[] =>
  schema.anyOf === undefined ? [String(schema.type)] : optionsOf(schema).map(({ type }) => String(type))

/** The place of a value in the schema. @param path JSON pointer to the value in the body. */
function locationOf(schema: TSchema, path: string): string {
  let at = schema
  let location = ''
  for (const part of path.split('/').slice(1)) {
    at = withoutNull(at)
    if (KindGuard.IsArray(at)) {
      location += '/items'
      at = at.items
    } else if (KindGuard.IsObject(at) && at.properties[unescapePointer(part)] !== undefined) {
      location += `/properties/${part}`
      at = at.properties[unescapePointer(part)] as TSchema // the line above looked
    } else return location
  }
  return location
}

/** In the published description such a value has two types, and no `anyOf`. */
const withoutNull = (schema: TSchema): TSchema =>
  optionsOf(schema).find(({ type }) => type !== 'null') ?? schema

const lengthOf = (text: string): number => {
  let length = 0
  for (const _ of text) length++
  return length
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

/** JSON pointers write `~1` for a slash and `~0` for a tilde. */
const unescapePointer = (part: string) => part.replaceAll('~1', '/').replaceAll('~0', '~')

/** More would hardly be read. */
const DETAILS_MAX = 20
const NAMES_MAX = 20
const PROBLEMS_MAX = 1_000
