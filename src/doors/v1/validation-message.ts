import { KindGuard, type TSchema } from '@sinclair/typebox'
import { type ValueError, ValueErrorType } from '@sinclair/typebox/errors'
import { shown } from '../../lib/cut-text.ts'
import { isUnixMs, looksLikeSeconds } from './unix-ms.ts'

/**
 * The first problem as the v1 API words it: `<path joined with dots>: <reason>`, the path empty at the root. First in
 * the order of the schema's fields, whatever order the checker reports in. Of very many problems only the first that are
 * found are looked at: listing half a million of them, as one body can have, would take seconds.
 */
export function validationMessage(schema: TSchema, errors: Iterable<ValueError>): string {
  const error = firstProblem(schema, firstOf(errors), '')
  if (error === undefined) return ': Invalid input'
  const path = error.path.split('/').slice(1).map(unescapePointer).join('.')
  return `${shown(path)}: ${reason(error)}`
}

function firstOf(errors: Iterable<ValueError>): ValueError[] {
  const first: ValueError[] = []
  for (const error of errors) if (first.push(error) === PROBLEMS_MAX) break
  return first
}
const PROBLEMS_MAX = 1_000

/** @param path Of the value that `schema` describes, as a JSON pointer; all errors are at it or below. */
function firstProblem(schema: TSchema, errors: ValueError[], path: string): ValueError | undefined {
  const own = errors.find((error) => error.path === path)
  if (own !== undefined) return insideNullable(own) ?? own
  for (const [name, property] of childrenOf(schema, errors, path)) {
    const childPath = `${path}/${name}`
    const here = errors.filter((error) => error.path === childPath || error.path.startsWith(`${childPath}/`))
    if (here.length > 0) return firstProblem(property, here, childPath)
  }
  return errors[0]
}

/** Fields of an object in the order of the schema; of a list, the first element with a problem. */
function childrenOf(schema: TSchema, errors: ValueError[], path: string): [string, TSchema][] {
  if (KindGuard.IsObject(schema)) return Object.entries(schema.properties)
  if (!KindGuard.IsArray(schema)) return []
  const index = errors[0]?.path.slice(path.length + 1).split('/')[0]
  return index === undefined ? [] : [[index, schema.items]]
}

/** A value that may also be null is judged by what it is when not null, at whatever depth the problem is. */
function insideNullable({ type, schema, value, path, errors }: ValueError): ValueError | undefined {
  if (type !== ValueErrorType.Union || value === undefined) return undefined
  const options: TSchema[] = schema.anyOf ?? []
  const index = options.findIndex((option) => option.type !== 'null')
  const option = options[index]
  if (option === undefined || options.length !== 2 || options.every(({ type }) => type !== 'null'))
    return undefined
  return firstProblem(option, firstOf(errors[index] ?? []), path)
}

/** The stock texts of the v1 API's validator, which clients compare. */
function reason({ type, schema, value }: ValueError): string {
  switch (type) {
    case ValueErrorType.ObjectRequiredProperty:
      return 'Required'
    case ValueErrorType.StringMinLength:
      return `String must contain at least ${schema.minLength} character(s)`
    case ValueErrorType.StringMaxLength:
      return `String must contain at most ${schema.maxLength} character(s)`
    case ValueErrorType.ArrayMinItems:
      return `Array must contain at least ${schema.minItems} element(s)`
    case ValueErrorType.ArrayMaxItems:
      return `Array must contain at most ${schema.maxItems} element(s)`
    case ValueErrorType.IntegerMinimum:
    case ValueErrorType.NumberMinimum:
      return `Number must be greater than or equal to ${schema.minimum}`
    case ValueErrorType.IntegerExclusiveMinimum:
    case ValueErrorType.NumberExclusiveMinimum:
      return `Number must be greater than ${schema.exclusiveMinimum}`
    case ValueErrorType.IntegerMaximum:
    case ValueErrorType.NumberMaximum:
      return `Number must be less than or equal to ${schema.maximum}`
    case ValueErrorType.Union:
      return unionReason(schema, value)
    case ValueErrorType.Integer:
    case ValueErrorType.Number:
    case ValueErrorType.String:
    case ValueErrorType.Boolean:
    case ValueErrorType.Array:
    case ValueErrorType.Object:
    case ValueErrorType.Null:
      return expected(schema, value)
    case ValueErrorType.Kind:
      return isUnixMs(schema) ? unixMsReason(schema, value) : 'Invalid'
    case ValueErrorType.Literal:
      return value === undefined
        ? 'Required'
        : `Invalid literal value, expected ${JSON.stringify(schema.const)}`
    default:
      return schema.errorMessage ?? 'Invalid'
  }
}

function unixMsReason(schema: TSchema, value: unknown): string {
  if (typeof value !== 'number' || !Number.isInteger(value)) return expected(schema, value)
  if (looksLikeSeconds(value))
    return `Expected Unix milliseconds, received what looks like seconds: ${value * 1000} would be ${new Date(value * 1000).toISOString()}`
  return value < schema.minimum
    ? `Number must be greater than or equal to ${schema.minimum}`
    : `Number must be less than or equal to ${schema.maximum}`
}

/** A choice of texts is an enum. */
function unionReason(schema: TSchema, value: unknown): string {
  if (value === undefined) return 'Required'
  const options: TSchema[] = schema.anyOf ?? []
  const literals = options.filter((option) => option.const !== undefined)
  if (literals.length > 0 && literals.length >= options.length - 1) {
    const choices = literals.map((option) => `'${option.const}'`).join(' | ')
    return typeof value === 'string'
      ? `Invalid enum value. Expected ${choices}, received '${shown(value)}'`
      : `Expected ${choices}, received ${kindOf(value)}`
  }
  return 'Invalid input'
}

function expected(schema: TSchema, value: unknown): string {
  if (value === undefined) return 'Required'
  if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY) return 'Number must be finite'
  if (schema.type === 'integer' && typeof value === 'number' && !Number.isNaN(value))
    return 'Expected integer, received float'
  const wanted = schema.type === 'integer' ? 'number' : schema.type
  return `Expected ${wanted}, received ${kindOf(value)}`
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  if (Number.isNaN(value)) return 'nan'
  return typeof value
}

/** Paths are JSON pointers: `~1` is a slash in a name, `~0` a tilde. */
const unescapePointer = (part: string) => part.replaceAll('~1', '/').replaceAll('~0', '~')
