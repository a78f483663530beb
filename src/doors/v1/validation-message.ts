import { KindGuard, type TSchema } from '@sinclair/typebox'
import { type ValueError, ValueErrorType } from '@sinclair/typebox/errors'
import { shown } from '../../lib/cut-text.ts'
import { isUnixMs, looksLikeSeconds } from './unix-ms.ts'

/**
 * The first problem in the v1 API's words: `<path joined by dots>: <reason>`, with an empty path at the root. "First" is by
 * the order of the schema's fields, not of the checker. Only a bounded number of problems is looked at: one body can have
 * half a million, and listing those would take seconds.
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

/** @param path JSON pointer of the value that `schema` describes. All errors are at this path or below. */
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

/** The object's fields in the order of the schema; of a list, the first element with a problem. */
function childrenOf(schema: TSchema, errors: ValueError[], path: string): [string, TSchema][] {
  if (KindGuard.IsObject(schema)) return Object.entries(schema.properties)
  if (!KindGuard.IsArray(schema)) return []
  const index = errors[0]?.path.slice(path.length + 1).split('/')[0]
  return index === undefined ? [] : [[index, schema.items]]
}

/** For a value that may be null: the problem of the other type, at any depth. */
function insideNullable({ type, schema, value, path, errors }: ValueError): ValueError | undefined {
  if (type !== ValueErrorType.Union || value === undefined) return undefined
  const options: TSchema[] = schema.anyOf ?? []
  const index = options.findIndex((option) => option.type !== 'null')
  const option = options[index]
  if (option === undefined || options.length !== 2 || options.every(({ type }) => type !== 'null'))
    return undefined
  return firstProblem(option, firstOf(errors[index] ?? []), path)
}

/** The texts of the v1 API's validator. Clients compare them. */
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
    return `Expected Unix milliseconds, received what looks like seconds; in milliseconds it is ${value * 1000} (${new Date(value * 1000).toISOString()})`
  return value < schema.minimum
    ? `Number must be greater than or equal to ${schema.minimum}`
    : `Number must be less than or equal to ${schema.maximum}`
}

/** A union of texts is an enum. */
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

/** JSON pointers write `~1` for a slash and `~0` for a tilde. */
const unescapePointer = (part: string) => part.replaceAll('~1', '/').replaceAll('~0', '~')
