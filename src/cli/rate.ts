import { parseDuration } from '../lib/written-time.ts'
import { quoted } from './arguments.ts'
import { UsageError } from './usage-error.ts'

/** A rate limit, as people write one. `duration` in ms. */
export type Rate = { limit: number; duration: number }

/** @param text `100/1m`, `10/s`. @returns null when it is not a rate. */
export function parseRate(text: string): Rate | null {
  const [, count = '', window = ''] = /^(\d+)\/([0-9a-z]+)$/.exec(text) ?? []
  const limit = count === '' ? Number.NaN : Number(count)
  const duration = parseDuration(/^\d/.test(window) ? window : `1${window}`)
  return Number.isSafeInteger(limit) && limit > 0 && duration !== null && duration > 0
    ? { limit, duration }
    : null
}

/** @throws UsageError */
export function readRate(option: string, text: string): Rate {
  const rate = parseRate(text)
  if (rate !== null) return rate
  throw new UsageError(`--${option} is ${quoted(text)}; it must be a rate such as 100/1m: 100 in each minute`)
}

/** @param text `name=100/1m`: a limit that verifications request by its name. @throws UsageError */
export function readNamedRate(option: string, text: string): Rate & { name: string } {
  const at = text.lastIndexOf('=')
  const rate = at < 1 ? null : parseRate(text.slice(at + 1))
  if (rate !== null) return { name: text.slice(0, at), ...rate }
  throw new UsageError(`--${option} is ${quoted(text)}; it must be a name and a rate such as requests=100/1m`)
}
