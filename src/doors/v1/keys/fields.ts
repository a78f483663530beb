import type { Ratelimit } from '../../../api/keys/limits/store.ts'
import type { Refill } from '../../../api/keys/refill.ts'
import { badRequest } from '../../../errors.ts'

type RefillField = { interval: 'daily' | 'monthly'; amount: number; refillDay?: number | undefined }
type RatelimitField = { limit: number; duration?: number | undefined; refillInterval?: number | undefined }

/**
 * The refill of a new key.
 * @param path Place of the field in the request, for the message.
 * @throws ApiError BAD_REQUEST for a refill of a key without credits, or a day on a daily refill.
 */
export function readRefill(
  refill: RefillField | undefined,
  remaining: number | undefined,
  path: string,
): Refill | null {
  if (refill === undefined) return null
  if (remaining === undefined) throw badRequest(`${path}: needs remaining to be set`)
  return { amount: refill.amount, day: refillDayOf(refill, path), mode: 'add' }
}

/** @returns null = daily. @throws ApiError BAD_REQUEST for a day on a daily refill. */
export function refillDayOf({ interval, refillDay }: RefillField, path: string): number | null {
  if (interval === 'monthly') return refillDay ?? 1
  if (refillDay !== undefined)
    throw badRequest(`${path}.refillDay: must be null or left out when the interval is daily`)
  return null
}

/** The limit of a new key. @throws ApiError BAD_REQUEST when neither duration nor refillInterval is given. */
export function readRatelimit(ratelimit: RatelimitField | undefined, path: string): Ratelimit | null {
  if (ratelimit === undefined) return null
  const durationMs = ratelimit.duration ?? ratelimit.refillInterval
  if (durationMs === undefined) throw badRequest(`${path}.duration: Required`)
  return { limit: ratelimit.limit, durationMs }
}

/** Expiry of a new key, Unix ms; 0 and absent become null = never. */
export const expiryOf = (expires: number | undefined) => expires || null
