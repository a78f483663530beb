import { matchesWildcard } from '../lib/wildcard.ts'
import type { OverrideRow } from './store.ts'

/** What an override puts in place of the caller's own values. */
export type Override = { id: string; limit: number; durationMs: number }

/** A namespace's overrides, arranged for lookup. */
export type Overrides = {
  exact: ReadonlyMap<string, Override>
  /** Longest pattern first, then lowest id: the first that matches decides. */
  wildcards: readonly (Override & { pattern: string })[]
}

export function arrangeOverrides(rows: readonly OverrideRow[]): Overrides {
  const exact = new Map<string, Override>()
  const wildcards: (Override & { pattern: string })[] = []
  for (const { id, identifier, limit, durationMs } of rows) {
    if (identifier.includes('*')) wildcards.push({ id, limit, durationMs, pattern: identifier })
    else exact.set(identifier, { id, limit, durationMs })
  }
  wildcards.sort((a, b) => b.pattern.length - a.pattern.length || (a.id < b.id ? -1 : 1))
  return { exact, wildcards }
}

/** Exact beats wildcard. An identifier that itself holds a `*` is only ever compared, never a pattern. */
export function findOverride(overrides: Overrides, identifier: string): Override | null {
  const exact = overrides.exact.get(identifier)
  if (exact !== undefined) return exact
  for (const override of overrides.wildcards)
    if (matchesWildcard(override.pattern, identifier)) return override
  return null
}
