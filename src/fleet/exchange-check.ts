import { bucketOf } from './buckets.ts'
import { ENTRIES_MAX, type Entry, type Exchange } from './engine.ts'

/** The mistake of a caller in an exchange with an engine of that many buckets; null = none. */
export function wrongWith(
  { bucket, nowMs, looseMs, share, entries }: Exchange,
  buckets: number,
): string | null {
  if (!(Number.isInteger(bucket) && bucket >= 0 && bucket < buckets)) return `there is no bucket ${bucket}`
  if (entries.length > ENTRIES_MAX) return `${entries.length} entries are too many`
  if (!(share >= 2)) return `a share of ${share}`
  if (!isTime(nowMs + 1) || !isCount(looseMs)) return `a time of ${nowMs}, loose for ${looseMs}`
  const firstWords = new Set<number>()
  for (const [i, entry] of entries.entries()) {
    const { h0, endMs, limit, given, hasForgotten, returned, owed, asked, least, ahead } = entry
    if (bucketOf(h0, buckets) !== bucket) return 'an entry of another bucket'
    if (firstWords.has(h0) && entries.findIndex((other) => isSameCell(other, entry)) < i)
      return 'a cell comes twice'
    firstWords.add(h0)
    // One by one: this is asked of each entry that is sent.
    const areCounts =
      isCount(limit) &&
      isCount(given) &&
      isCount(returned) &&
      isCount(owed) &&
      isCount(asked) &&
      isCount(least) &&
      isCount(ahead)
    if (!areCounts) return `a count out of bounds: ${[limit, given, returned, owed, asked, least, ahead]}`
    if (least > asked) return `at least ${least} of ${asked}`
    if (hasForgotten && given + returned > 0) return 'who has forgotten holds nothing and returns nothing'
    if (!isTime(endMs)) return `an end of ${endMs}`
  }
  return null
}

const isSameCell = (a: Entry, b: Entry) => a.h0 === b.h0 && a.h1 === b.h1 && a.h2 === b.h2 && a.h3 === b.h3
const isCount = (value: number) => Number.isSafeInteger(value) && value >= 0
const isTime = (value: number) => isCount(value) && value > 0 && value <= 2 ** 46
