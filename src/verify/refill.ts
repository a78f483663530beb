import { DAY_MS } from '../lib/clock.ts'
import type { Refill } from './key-record.ts'

/**
 * True when a refill is due. Daily refills are due at every UTC midnight, monthly ones at the UTC midnight that begins
 * their day (in a shorter month, its last day). Several missed days make one refill.
 */
export const isRefillDue = (refill: Refill, now: number): boolean =>
  lastDueAt(refill.day, now) > refill.baseAt

/** The latest due time at or before `now`, Unix ms. */
export function lastDueAt(day: number | null, now: number): number {
  if (day === null) return now - (((now % DAY_MS) + DAY_MS) % DAY_MS)
  const date = new Date(now)
  const thisMonth = dueIn(date.getUTCFullYear(), date.getUTCMonth(), day)
  return thisMonth <= now ? thisMonth : dueIn(date.getUTCFullYear(), date.getUTCMonth() - 1, day)
}

/** The first due time after `now`, Unix ms. */
export function nextDueAt(day: number | null, now: number): number {
  if (day === null) return lastDueAt(null, now) + DAY_MS
  const date = new Date(now)
  const thisMonth = dueIn(date.getUTCFullYear(), date.getUTCMonth(), day)
  return thisMonth > now ? thisMonth : dueIn(date.getUTCFullYear(), date.getUTCMonth() + 1, day)
}

/** @param month 0 = January; -1 is the December before, 12 the January after. */
function dueIn(year: number, month: number, day: number): number {
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate()
  return Date.UTC(year, month, Math.min(day, lastDay))
}
