import { cutText } from '../lib/cut-text.ts'

/** Fields under their names in the API; null = the thing does not exist. Never a secret. */
type Fields = Readonly<Record<string, unknown>>

/** The changed fields in an audit event. */
export type Changes = { before?: Record<string, unknown>; after?: Record<string, unknown> }

/**
 * The fields that differ, before and after; empty when none does. A new thing has no `before`, a deleted one no `after`.
 * Each value is bounded: a long text is cut, a long list says how many elements it leaves out.
 */
export function changesOf(before: Fields | null, after: Fields | null): Changes {
  if (before === null) return after === null ? {} : { after: shortenAll(after) }
  if (after === null) return { before: shortenAll(before) }
  const was: Record<string, unknown> = {}
  const is: Record<string, unknown> = {}
  for (const name of Object.keys({ ...before, ...after })) {
    const [from, to] = [before[name] ?? null, after[name] ?? null]
    if (JSON.stringify(from) === JSON.stringify(to)) continue
    const isLong = lengthOf(from) > CHARACTERS_MAX || lengthOf(to) > CHARACTERS_MAX
    const areLists = Array.isArray(from) && Array.isArray(to)
    // Common elements of long lists are left out first, so that added ones are shown: an added `*` must not be cut.
    was[name] = shorten(isLong && areLists ? without(from, to) : from)
    is[name] = shorten(isLong && areLists ? without(to, from) : to)
  }
  return Object.keys(is).length === 0 ? {} : { before: was, after: is }
}

/** Longest value, in characters of JSON. A key has about ten fields: an event is at most 40 kB, and usually 100 bytes. */
const CHARACTERS_MAX = 2000

const lengthOf = (value: unknown): number => JSON.stringify(value)?.length ?? 0

const without = (list: readonly unknown[], others: readonly unknown[]): unknown[] => {
  const known = new Set(others)
  const left = list.filter((element) => !known.has(element))
  return list.length === left.length ? left : [...left, `… ${list.length - left.length} that stay`]
}

const shortenAll = (fields: Fields): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, shorten(value ?? null)]))

function shorten(value: unknown): unknown {
  const length = lengthOf(value)
  if (length <= CHARACTERS_MAX) return value
  if (typeof value === 'string') return `${cutText(value, CHARACTERS_MAX / 2)}… (${value.length} characters)`
  if (!Array.isArray(value)) return `… (${length} characters of JSON)`
  // Short elements first: among a root key's permissions those are the wide ones.
  const byLength = value.toSorted((a, b) => lengthOf(a) - lengthOf(b))
  const shown: unknown[] = []
  let room = CHARACTERS_MAX - 20 // room for the number of left-out elements
  for (const element of byLength) {
    room -= lengthOf(element) + 1
    if (room < 0) break
    shown.push(element)
  }
  return [...shown, `… ${value.length - shown.length} more`]
}
