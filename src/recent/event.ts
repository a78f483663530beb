import type { Outcome } from '../usage/recorder.ts'

/** What a key or an identifier asked, and what it got. `PASSED` is of rate limits, `VALID` of keys; `RATE_LIMITED` of both. */
export type RecentOutcome = Outcome | 'PASSED'

/**
 * An event in memory. Plain data, as threads send it to each other; in a ring it is written over again and again. Texts are
 * those of the request and of cached records, so an event holds neither a request nor a record.
 */
export class RecentEvent {
  /** Counts the events of a thread. */
  sequence = 0
  /** Unix ms, never before that of an earlier event of the thread. */
  at = 0
  requestId = ''
  workspaceId = ''
  outcome: RecentOutcome = 'VALID'
  /** Null = of a rate limit call. */
  keyId: string | null = null
  keyName: string | null = null
  apiId: string | null = null
  identityId: string | null = null
  externalId: string | null = null
  /** Null = of a verification. */
  namespaceId: string | null = null
  namespaceName: string | null = null
  identifier: string | null = null
  /** Of a verification: the limit that refused, or the first one. Null = no limit was asked, or of a rate limit call. */
  limitName: string | null = null
  /** Tokens of a window. -1 = no limit was asked. */
  limit = -1
  durationMs = 0
  /** Tokens left after the decision. */
  remaining = 0
  resetAtMs = 0
  /** Tokens of a rate limit call; credits of a verification. */
  cost = 0
  /** Credits left after a verification; -1 = they were not read. */
  credits = -1
  tags: readonly string[] | null = null
  /** Only of refusals and of watched events. */
  address: string | null = null
}

/** Written out, because it runs for each refusal. */
export function copyEvent(to: RecentEvent, from: RecentEvent): void {
  to.sequence = from.sequence
  to.at = from.at
  to.requestId = from.requestId
  to.workspaceId = from.workspaceId
  to.outcome = from.outcome
  to.keyId = from.keyId
  to.keyName = from.keyName
  to.apiId = from.apiId
  to.identityId = from.identityId
  to.externalId = from.externalId
  to.namespaceId = from.namespaceId
  to.namespaceName = from.namespaceName
  to.identifier = from.identifier
  to.limitName = from.limitName
  to.limit = from.limit
  to.durationMs = from.durationMs
  to.remaining = from.remaining
  to.resetAtMs = from.resetAtMs
  to.cost = from.cost
  to.credits = from.credits
  to.tags = from.tags
  to.address = from.address
}

export const isRefusal = (outcome: RecentOutcome): boolean => outcome !== 'VALID' && outcome !== 'PASSED'

/** Which events are wanted: all conditions hold. Null = any. */
export type EventFilter = {
  workspaceId: string
  outcomes: 'all' | 'refused' | readonly RecentOutcome[]
  requestId: string | null
  keyId: string | null
  /** Id of an identity, or its external id. */
  identity: string | null
  namespaceId: string | null
  identifier: string | null
}

export function isWanted(event: RecentEvent, filter: EventFilter): boolean {
  const { outcomes, requestId, keyId, identity, namespaceId, identifier } = filter
  return (
    event.workspaceId === filter.workspaceId &&
    (outcomes === 'all' ||
      (outcomes === 'refused' ? isRefusal(event.outcome) : outcomes.includes(event.outcome))) &&
    (requestId === null || event.requestId === requestId) &&
    (keyId === null || event.keyId === keyId) &&
    (identity === null || event.identityId === identity || event.externalId === identity) &&
    (namespaceId === null || event.namespaceId === namespaceId) &&
    (identifier === null || event.identifier === identifier)
  )
}
