import { clock, day, utc } from '../format.ts'

/** Used within a day: whoever uses it is cut off. */
export const isRecent = (at: number | undefined): boolean =>
  at !== undefined && at > Date.now() - 25 * 3_600_000

/** To the hour: that is what is stored. */
export function LastUsed({ at }: { at: number | undefined }) {
  if (at === undefined) return <span class="none">never</span>
  const isToday = day(at) === day(Date.now())
  return (
    <span title={utc(at)} class="nowrap">
      {isToday
        ? `hour of ${clock(at)}`
        : `${day(at).replace(` ${new Date().getFullYear()}`, '')}, ${clock(at)}`}
    </span>
  )
}
