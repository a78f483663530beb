import type { KeyObject } from '../../../doors/v1/keys/schema.ts'
import { fromNow } from '../format.ts'

export type Chip = { kind: 'ok' | 'warn' | 'bad' | ''; text: string }

/** What a key is, apart from being active; empty = active. */
export function chipsOf({ enabled, expires, remaining }: KeyObject, now = Date.now()): Chip[] {
  const chips: Chip[] = []
  if (!enabled) chips.push({ kind: 'bad', text: 'Disabled' })
  if (expires !== undefined && expires < now) chips.push({ kind: 'bad', text: 'Expired' })
  else if (expires !== undefined && expires < now + SOON_MS)
    chips.push({ kind: 'warn', text: `Expires ${fromNow(expires, now)}` })
  if (remaining === 0) chips.push({ kind: 'bad', text: 'No credits' })
  else if (remaining !== undefined && remaining <= FEW) chips.push({ kind: 'warn', text: 'Few credits' })
  return chips
}

/** As the states of keys.searchKeys. */
const SOON_MS = 7 * 86_400_000
const FEW = 10

/** How people call a key that may have no name. */
export const nameOf = ({ name, start }: Pick<KeyObject, 'name' | 'start'>): string =>
  name === undefined || name === '' ? `${start}…` : name

/** `100 a minute`, `5 in 90 s`. */
export function limitText({ limit, duration }: { limit: number; duration: number }): string {
  const unit = UNITS.find(({ ms }) => ms === duration)
  if (unit !== undefined) return `${limit} ${unit.each}`
  const best = UNITS.filter(({ ms }) => duration % ms === 0).at(-1)
  return best === undefined ? `${limit} in ${duration} ms` : `${limit} in ${duration / best.ms} ${best.short}`
}

export const UNITS = [
  { value: 'ms', ms: 1, short: 'ms', each: 'a millisecond', name: 'milliseconds' },
  { value: 's', ms: 1000, short: 's', each: 'a second', name: 'seconds' },
  { value: 'min', ms: 60_000, short: 'min', each: 'a minute', name: 'minutes' },
  { value: 'h', ms: 3_600_000, short: 'h', each: 'an hour', name: 'hours' },
  { value: 'd', ms: 86_400_000, short: 'days', each: 'a day', name: 'days' },
] as const
export type Unit = (typeof UNITS)[number]['value']

/** A length of time as a number of its largest whole unit. */
export function partsOfDuration(ms: number): { count: number; unit: Unit } {
  const best = UNITS.filter((each) => ms % each.ms === 0).at(-1) ?? UNITS[0]
  return { count: ms / best.ms, unit: best.value }
}
