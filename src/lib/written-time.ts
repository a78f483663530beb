import { DURATION_MS_MAX, TIME_MS_MAX } from './bounds.ts'

/*
 * Durations and times as people write them. Both also take a plain number of milliseconds, as programs do.
 */

/** Forms of a duration, for help and errors. */
export const DURATION_EXAMPLES = '30s, 15m, 12h, 30d, 1w, 1h30m, or a number of milliseconds'
/** Forms of a time, for help and errors. */
export const TIME_EXAMPLES = '2026-12-31, 2026-12-31T12:00Z, 30d, or Unix milliseconds'

/** Milliseconds of each unit, from the longest to the shortest. */
const UNITS = { w: 604_800_000, d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const
const UNIT_NAMES = Object.keys(UNITS) as (keyof typeof UNITS)[] // the names of the object

/** Every unit at most once, from the longest to the shortest: `1w2d`, `1h30m`. */
const DURATION = new RegExp(`^${UNIT_NAMES.map((unit) => `(?:(\\d+)${unit})?`).join('')}$`)

/** @returns milliseconds; null when the text is not a duration, or longer than a hundred years. */
export function parseDuration(text: string): number | null {
  if (/^\d+$/.test(text)) return within(Number(text), DURATION_MS_MAX)
  const counts = text === '' ? null : DURATION.exec(text)
  if (counts === null) return null
  const sum = UNIT_NAMES.reduce((ms, unit, index) => ms + Number(counts[index + 1] ?? 0) * UNITS[unit], 0)
  return within(sum, DURATION_MS_MAX)
}

/** The shortest text that {@link parseDuration} reads as this duration. */
export function durationText(ms: number): string {
  let rest = ms
  const parts = UNIT_NAMES.flatMap((unit) => {
    const count = Math.floor(rest / UNITS[unit])
    rest -= count * UNITS[unit]
    return count === 0 ? [] : [`${count}${unit}`]
  })
  return parts.length === 0 ? '0s' : parts.join('')
}

/** A date, or a date and a time of day; UTC without a zone. */
const ISO =
  /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?(?:(Z)|([+-])(\d{2}):?(\d{2}))?)?$/i

/**
 * @param options.durationsGo Direction of a duration from `now`: `forward` for the end of a key, `back` for past events.
 * @returns Unix ms; null when the text is not a time.
 */
export function parseTime(
  text: string,
  { now, durationsGo }: { now: number; durationsGo: 'forward' | 'back' },
): number | null {
  if (/^\d+$/.test(text)) return within(Number(text), TIME_MS_MAX)
  const duration = parseDuration(text)
  if (duration !== null) return durationsGo === 'forward' ? now + duration : Math.max(0, now - duration)
  return parseDate(text)
}

/** @returns Unix ms of a date, or of a date and a time of day; null for other texts. */
export function parseDate(text: string): number | null {
  const found = ISO.exec(text)
  if (found === null) return null
  const [, date = '', hour = '0', minute = '0', second = '0', fraction = '', , sign, zoneHour, zoneMinute] =
    found
  const midnight = Date.parse(`${date}T00:00:00.000Z`)
  // The runtime turns the 31st of a shorter month into another day. Refuse it.
  if (Number.isNaN(midnight) || new Date(midnight).toISOString().slice(0, 10) !== date) return null
  const zone = [Number(zoneHour ?? 0), Number(zoneMinute ?? 0)] as const
  if (Number(hour) > 23 || [minute, second].some((part) => Number(part) > 59)) return null
  if (zone[0] > 23 || zone[1] > 59) return null
  const offset = (sign === '-' ? -1 : 1) * (zone[0] * UNITS.h + zone[1] * UNITS.m)
  const ofDay = Number(hour) * UNITS.h + Number(minute) * UNITS.m + Number(second) * UNITS.s
  return midnight + ofDay + Number(fraction.padEnd(3, '0')) - offset
}

const within = (value: number, max: number): number | null => (value <= max ? value : null)
