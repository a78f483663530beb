/** Exact, with thin spaces between thousands. */
export const exact = (value: number): string =>
  Math.abs(value) < 10_000 ? String(value) : String(value).replace(/\B(?=(\d{3})+$)/g, '\u202f')

/** Short, for cards: `12.4 k`. */
export function short(value: number): string {
  for (const { from, size, unit } of UNITS)
    if (Math.abs(value) >= from) {
      const digits = value / size
      return `${digits >= 100 ? Math.round(digits) : digits.toFixed(1)}\u202f${unit}`
    }
  return exact(value)
}
const UNITS = [
  { from: 1e12, size: 1e12, unit: 'T' },
  { from: 1e9, size: 1e9, unit: 'G' },
  { from: 1e6, size: 1e6, unit: 'M' },
  { from: 1e4, size: 1e3, unit: 'k' },
]

export function share(part: number, whole: number): string {
  if (whole === 0) return '0\u202f%'
  const percent = (100 * part) / whole
  if (percent > 0 && percent < 0.1) return '<\u202f0.1\u202f%'
  return `${percent >= 10 || percent === 0 ? Math.round(percent) : percent.toFixed(1)}\u202f%`
}

const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
const SECONDS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })

/** In the viewer's zone. */
export const clock = (at: number): string => TIME.format(at)
export const seconds = (at: number): string => SECONDS.format(at)
export const day = (at: number): string => DAY.format(at)
export const dayAndTime = (at: number): string => `${DAY.format(at)}, ${TIME.format(at)}`
/** For titles and files. */
export const utc = (at: number): string => new Date(at).toISOString()

/** `in 35 days`, `3 h ago`. */
export function fromNow(at: number, now = Date.now()): string {
  const distance = Math.abs(at - now)
  const [size, unit] =
    distance >= 2 * DAY_MS ? [DAY_MS, 'days'] : distance >= HOUR_MS ? [HOUR_MS, 'h'] : [MINUTE_MS, 'min']
  const count = Math.round(distance / size)
  if (count === 0) return 'now'
  return at > now ? `in ${count}\u00a0${unit}` : `${count}\u00a0${unit} ago`
}
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const DAY_MS = 86_400_000

/** `1 key`, `2 keys`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${exact(count)} ${count === 1 ? one : many}`
