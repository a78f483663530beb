import { Kind, type TUnsafe, Type, TypeRegistry } from '@sinclair/typebox'
import { TIME_MS_MAX } from '../../lib/bounds.ts'

/**
 * A time in Unix milliseconds from outside. What is plainly a time in seconds is refused: as milliseconds it lies in the
 * first years of 1970, and a key that ends there is dead, a range that begins there takes in everything.
 */
export const UnixMs = ({
  minimum = 0,
  description,
}: {
  minimum?: number
  description?: string
} = {}): TUnsafe<number> =>
  Type.Unsafe<number>({
    [Kind]: KIND,
    type: 'integer',
    minimum,
    maximum: TIME_MS_MAX,
    ...(description === undefined ? {} : { description }),
  })

export const isUnixMs = (schema: { [Kind]?: string }) => schema[Kind] === KIND

/** As seconds from the year 2001 to 5138, as milliseconds until March 1973. */
export const looksLikeSeconds = (value: number) => value >= 1e9 && value < 1e11

const KIND = 'UnixMs'
TypeRegistry.Set<{ minimum: number; maximum: number }>(
  KIND,
  ({ minimum, maximum }, value) =>
    typeof value === 'number' &&
    Number.isInteger(value) &&
    value >= minimum &&
    value <= maximum &&
    !looksLikeSeconds(value),
)
