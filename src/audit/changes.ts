import { cutText } from '../lib/cut-text.ts'

/** Fields of a thing under the names that the API gives them; null = none. Never a secret. */
type Fields = Readonly<Record<string, unknown>>

/** What an audit entry says of a change: the fields that differ, and no others. */
export type Changes = { before?: Record<string, unknown>; after?: Record<string, unknown> }

/**
 * The fields that differ, as they were and as they are; empty when none does. What is made has no `before`, what is deleted
 * no `after`. Each value is bounded, so an entry is: a text is cut, a list says how many elements it leaves out.
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
    // What both lists have must not take the room of what was added: a `*` could hide behind it.
    was[name] = shorten(isLong && areLists ? without(from, to) : from)
    is[name] = shorten(isLong && areLists ? without(to, from) : to)
  }
  return Object.keys(is).length === 0 ? {} : { before: was, after: is }
}

/** Characters of a value as JSON. A key has some ten fields: at most 40 kB for an entry, and 100 bytes as a rule. */
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
  // The short ones first: of a root key's permissions these are the wide ones.
  const byLength = value.toSorted((a, b) => lengthOf(a) - lengthOf(b))
  const shown: unknown[] = []
  let room = CHARACTERS_MAX - 20 // for what is left out
  for (const element of byLength) {
    room -= lengthOf(element) + 1
    if (room < 0) break
    shown.push(element)
  }
  return [...shown, `… ${value.length - shown.length} more`]
}
