import type { Refill } from '../../../api/keys/refill.ts'
import { InvalidInput } from '../../../errors.ts'
import type { CreditsRequest, UpdateKeyBody } from './schema.ts'

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
