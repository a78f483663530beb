import { checkState } from './checks.ts'
import type { KeyRecord } from './key-record.ts'

/**
 * What a verification answers by the state of the key alone. Its address, permissions, limits and credits are left out: they
 * depend on the request, or would have to be taken.
 */
export const STANDINGS = ['VALID', 'NOT_FOUND', 'FORBIDDEN', 'DISABLED', 'EXPIRED'] as const
export type Standing = (typeof STANDINGS)[number]

export const isStanding = (text: string): text is Standing => STANDINGS.some((each) => each === text)

/** `FORBIDDEN`: its workspace is disabled. Of a root key: as it is answered when a request is made with it. */
export function standingOf(record: KeyRecord | null, now: number): Standing {
  if (record === null) return 'NOT_FOUND'
  if (!record.workspaceEnabled) return 'FORBIDDEN'
  return checkState({ ...record, ipWhitelist: null }, ANY_REQUEST, now) ?? 'VALID'
}

const ANY_REQUEST = { apiId: null, caller: { clientAddress: () => null } }

/**
 * One standing for several that decide apart, such as the threads of a server: a key that one of them accepts is accepted.
 * @param standings Null = no answer. At least one.
 * @returns null when none accepts it and one did not answer.
 */
export function worstOf(standings: readonly (Standing | null)[]): Standing | null {
  if (standings.includes('VALID')) return 'VALID'
  return standings.includes(null) ? null : (standings[0] ?? null)
}
