import type { Static } from '@sinclair/typebox'
import { InvalidInput } from '../../errors.ts'
import type { Ratelimit, RatelimitRequest } from './schema.ts'

/** A limit of a key or an identity. */
type Limit = { name: string; limit: number; durationMs: number; autoApply: boolean }

/** @throws InvalidInput for a repeated name. */
export function readLimits(ratelimits: readonly Static<typeof RatelimitRequest>[]): Limit[] {
  const names = new Set<string>()
  return ratelimits.map(({ name, limit, duration: durationMs, autoApply = false }) => {
    if (names.has(name)) throw new InvalidInput('ratelimits', `the name ${name} is there more than once`)
    names.add(name)
    return { name, limit, durationMs, autoApply }
  })
}

export const limitObject = ({
  id,
  name,
  limit,
  durationMs: duration,
  autoApply,
}: Limit & { id: string }): Static<typeof Ratelimit> => ({ id, name, limit, duration, autoApply })
