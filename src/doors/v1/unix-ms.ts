import { Kind, type TUnsafe, Type, TypeRegistry } from '@sinclair/typebox'
import { TIME_MS_MAX } from '../../lib/bounds.ts'

/**
 * A time in Unix ms from a caller. A time that is plainly in seconds is refused: read as ms it is in early 1970, so a key
 * would be expired at once, and a range would begin before all data.
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

/** Read as seconds from 2001 to 5138; as milliseconds until March 1973. */
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
