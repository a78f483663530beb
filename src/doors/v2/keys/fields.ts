import type { Static } from '@sinclair/typebox'
import type { KeyLimit } from '../../../api/keys/limits/store.ts'
import type { Refill } from '../../../api/keys/refill.ts'
import { InvalidInput } from '../../../errors.ts'
import { META_CHARACTERS_MAX } from '../../../lib/meta.ts'
import type { RatelimitRequest } from '../schema.ts'
import type { CreditsRequest, UpdateKeyBody } from './schema.ts'

/** @throws InvalidInput when it is too long. */
export function requireShortMeta(meta: object | null | undefined): void {
  const length = meta ? JSON.stringify(meta).length : 0
  if (length > META_CHARACTERS_MAX)
    throw new InvalidInput(
      'meta',
      `too large: ${length} characters of JSON, at most ${META_CHARACTERS_MAX} are allowed`,
    )
}

/** @throws InvalidInput for a repeated name. */
export function readLimits(ratelimits: readonly Static<typeof RatelimitRequest>[]): KeyLimit[] {
  const names = new Set<string>()
  return ratelimits.map(({ name, limit, duration: durationMs, autoApply = false }) => {
    if (names.has(name)) throw new InvalidInput('ratelimits', `the name ${name} is there more than once`)
    names.add(name)
    return { name, limit, durationMs, autoApply }
  })
}

type Credits = { remaining: number | null; refill: Refill | null }

/** Credits of a new key. A day of a daily refill is ignored. @throws InvalidInput */
export function readNewCredits(credits: CreditsRequest | undefined): Credits {
  const { remaining = null, refill } = credits ?? {}
  if (refill === undefined) return { remaining, refill: null }
  if (remaining === null) throw refillWithoutCredits()
  return { remaining, refill: readRefill(refill) }
}

/** What is absent stays. Whoever ends the count of credits ends the refill. @throws InvalidInput */
export function readChangedCredits(credits: UpdateKeyBody['credits']): Partial<Credits> {
  if (credits === undefined) return {}
  const { remaining, refill } = credits ?? { remaining: null }
  if (remaining === null) {
    if (refill) throw refillWithoutCredits()
    return { remaining, refill: null }
  }
  if (refill?.interval === 'daily' && refill.refillDay !== undefined)
    throw new InvalidInput('credits.refill.refillDay', 'must not be provided when the interval is daily')
  return {
    ...(remaining === undefined ? {} : { remaining }),
    ...(refill === undefined ? {} : { refill: refill && readRefill(refill) }),
  }
}

/** A refill of the v2 API replaces what is left. */
function readRefill({ interval, amount, refillDay }: NonNullable<CreditsRequest['refill']>): Refill {
  if (interval === 'daily') return { amount, day: null, mode: 'set' }
  if (refillDay === undefined)
    throw new InvalidInput('credits.refill.refillDay', 'is required when the interval is monthly')
  return { amount, day: refillDay, mode: 'set' }
}

export const refillWithoutCredits = () =>
  new InvalidInput('credits.refill', 'needs a number in credits.remaining: the key has no credits to refill')
