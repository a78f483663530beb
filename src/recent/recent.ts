import type { Clock } from '../lib/clock.ts'
import type { Timers } from '../lib/timers.ts'
import {
  copyEvent,
  type EventFilter,
  isRefusal,
  isWanted,
  type RecentEvent,
  type RecentOutcome,
} from './event.ts'
import { LimitsSeen, type SeenLimit, type SeenLimits } from './limits-seen.ts'
import { type NearLimitEntry, NearLimits } from './near-limit.ts'
import { Ring } from './ring.ts'
import { type Watch, Watches, type WatchState } from './watches.ts'

/** A verified key, as far as an event names it. */
type VerifiedKey = {
  readonly workspaceId: string
  readonly id: string
  readonly name: string | null
  readonly apiId: string
  readonly identity: { readonly id: string; readonly externalId: string } | null
}
type Caller = { readonly requestId: string; clientAddress(): string | null }
type Limited = { name: string; limit: number; durationMs: number; remaining: number; resetAtMs: number }

/** A rate limit call. `seen` is this thread's memory of the namespace's limits; {@link Recent.decided} sets it. */
type LimitedNamespace = { readonly id: string; readonly name: string; seen: SeenLimits | null }
type Limiting = {
  readonly workspaceId: string
  readonly requestId: string
  readonly location: string | null
}

/** Exact counts of a workspace in this thread's memory. */
export type RecentCounts = { passed: number; refused: number }

/** What was refused how often, among the refusals that are remembered. */
export type RefusedSubject = {
  keyId: string | null
  keyName: string | null
  namespaceId: string | null
  namespaceName: string | null
  identifier: string | null
  outcome: RecentOutcome
  count: number
}

/** A place in a list: before (older than) this event. */
export type EventCursor = { at: number; thread: string; sequence: number }

/** An event of the process, whose threads count apart. */
export type ListedEvent = RecentEvent & { thread: string }

/** What is asked of the memory of each thread, and what each answers. Plain data. */
export type RecentQuestions = {
  list: {
    input: {
      filter: EventFilter
      /** Of its events only; null = of all that is remembered. */
      watchId: string | null
      before: EventCursor | null
      limit: number
      /** How many subjects are wanted; 0 = none are told. */
      top: number
    }
    answer: {
      /** Newest first; at most `limit`. */
      events: ListedEvent[]
      /** Unix ms: from here on, everything that was asked for is remembered. */
      since: number
      counts: RecentCounts
      refusedMost: RefusedSubject[]
      /** False = `watchId` is of no watch of the workspace. */
      isKnown: boolean
    }
  }
  near: { input: { workspaceId: string; namespaceId: string | null }; answer: NearLimitEntry[] }
  limits: { input: { namespaceId: string }; answer: SeenLimit[] }
  /** False = there are too many watches. */
  watch: { input: Watch; answer: boolean }
  /** False = there is no such watch. */
  unwatch: { input: { workspaceId: string; watchId: string }; answer: boolean }
  watches: { input: { workspaceId: string }; answer: WatchState[] }
}
export type RecentKind = keyof RecentQuestions
/** What a thread is asked. */
export type RecentQuestion = {
  [Kind in RecentKind]: { kind: Kind; input: RecentQuestions[Kind]['input'] }
}[RecentKind]

/** Asks every HTTP thread of the process. */
export type Recall = <Kind extends RecentKind>(
  kind: Kind,
  input: RecentQuestions[Kind]['input'],
) => Promise<Recalled<Kind>>
export type Recalled<Kind extends RecentKind> = {
  /** Of the threads that answered in time, the main thread's first. */
  answers: RecentQuestions[Kind]['answer'][]
  /** False = a thread did not answer: what it remembers is missing. */
  isComplete: boolean
}

/**
 * What one HTTP thread remembers of verifications and rate limit decisions. Memory only: gone at a restart.
 * [Decision](../../docs/decisions/0033-recent-events-are-rings-in-memory.md)
 *
 * Noting an event writes it into the ring of all; a refusal also into the ring of refusals, which lasts longer. A watch
 * keeps all events of what it watches. Readers ask every thread (`server/`), and each filters by workspace first.
 */
export class Recent {
  readonly watches: Watches
  private readonly all = new Ring(RECENT_MAX)
  private readonly refusals = new Ring(REFUSALS_MAX)
  private readonly near = new NearLimits()
  private readonly limitsSeen = new LimitsSeen()
  private readonly counts = new Map<string, RecentCounts>()
  private readonly startedAt: number
  private lastWorkspaceId = ''
  private lastCounts: RecentCounts = { passed: 0, refused: 0 }
  private sequence = 0

  /**
   * @param options.thread Unique in the process.
   * @param options.watches Those of the other threads.
   */
  constructor(
    private readonly options: {
      thread: string
      clock: Clock
      watches?: readonly Watch[]
      timers?: Pick<Timers, 'after'>
    },
  ) {
    this.startedAt = options.clock()
    this.watches = new Watches(options.timers)
    for (const watch of options.watches ?? []) this.watches.start(watch, this.startedAt)
  }

  /** Notes a verification of a key that exists. */
  verified(
    key: VerifiedKey,
    asked: { cost: number; tags: readonly string[] | null; caller: Caller },
    result: { outcome: RecentOutcome; limit: Limited | null; remaining: number | null },
    at: number,
  ): void {
    const { outcome } = result
    const event = this.all.next()
    this.fillVerification(event, key, asked, result, at)
    this.count(key.workspaceId, outcome === 'VALID')
    if (outcome === 'VALID' && !this.watches.isWatched(event)) return
    this.keep(event, outcome !== 'VALID', () => asked.caller.clientAddress())
  }

  /** Notes a decision of a namespace. A call with cost 0 decides nothing. */
  decided(
    actor: Limiting,
    namespace: LimitedNamespace,
    asked: { identifier: string; limit: number; duration: number; cost?: number },
    charge: { limit: number; durationMs: number },
    decision: { passed: boolean; used: number; resetAtMs: number; atMs: number },
    isShared: boolean,
  ): void {
    const { passed, atMs } = decision
    const { workspaceId } = actor
    if (namespace.seen === null || !namespace.seen.isKept) namespace.seen = this.limitsSeen.of(namespace.id)
    namespace.seen.note(asked.limit, asked.duration, isShared, atMs)
    this.near.note(workspaceId, namespace, asked.identifier, charge, decision)
    const event = this.all.next()
    event.sequence = ++this.sequence
    event.at = atMs
    event.requestId = actor.requestId
    event.workspaceId = workspaceId
    event.outcome = passed ? 'PASSED' : 'RATE_LIMITED'
    event.namespaceId = namespace.id
    event.namespaceName = namespace.name
    event.identifier = asked.identifier
    event.limit = charge.limit
    event.durationMs = charge.durationMs
    event.remaining = Math.max(0, charge.limit - decision.used)
    event.resetAtMs = decision.resetAtMs
    event.cost = asked.cost ?? 1
    if (event.keyId !== null) clearVerification(event)
    event.address = null
    this.count(workspaceId, passed)
    if (passed && !this.watches.isWatched(event)) return
    this.keep(event, !passed, () => actor.location)
  }

  private fillVerification(
    event: RecentEvent,
    key: VerifiedKey,
    { cost, tags, caller }: { cost: number; tags: readonly string[] | null; caller: Caller },
    {
      outcome,
      limit,
      remaining,
    }: { outcome: RecentOutcome; limit: Limited | null; remaining: number | null },
    at: number,
  ): void {
    event.sequence = ++this.sequence
    event.at = at
    event.requestId = caller.requestId
    event.workspaceId = key.workspaceId
    event.outcome = outcome
    event.keyId = key.id
    event.keyName = key.name
    event.apiId = key.apiId
    event.identityId = key.identity === null ? null : key.identity.id
    event.externalId = key.identity === null ? null : key.identity.externalId
    event.namespaceId = null
    event.namespaceName = null
    event.identifier = null
    event.limitName = limit === null ? null : limit.name
    event.limit = limit === null ? -1 : limit.limit
    event.durationMs = limit === null ? 0 : limit.durationMs
    event.remaining = limit === null ? 0 : limit.remaining
    event.resetAtMs = limit === null ? 0 : limit.resetAtMs
    event.cost = cost
    event.credits = remaining ?? -1
    event.tags = tags
    event.address = null
  }

  /** What only refusals and watched events cost. @param addressOf Called for these only: it reads headers. */
  private keep(event: RecentEvent, isRefused: boolean, addressOf: () => string | null): void {
    this.watches.note(event, addressOf)
    if (!isRefused) return
    event.address = addressOf()
    copyEvent(this.refusals.next(), event)
  }

  private count(workspaceId: string, passed: boolean): void {
    if (workspaceId !== this.lastWorkspaceId) {
      this.lastCounts = this.countsOf(workspaceId)
      this.lastWorkspaceId = workspaceId
    }
    if (passed) this.lastCounts.passed++
    else this.lastCounts.refused++
  }

  private countsOf(workspaceId: string): RecentCounts {
    let counts = this.counts.get(workspaceId)
    if (counts === undefined) {
      counts = { passed: 0, refused: 0 }
      // Their counts begin anew.
      if (this.counts.size >= WORKSPACES_MAX) this.counts.clear()
      this.counts.set(workspaceId, counts)
    }
    return counts
  }

  /** Answers for this thread. */
  answer<Kind extends RecentKind>(
    kind: Kind,
    input: RecentQuestions[Kind]['input'],
  ): RecentQuestions[Kind]['answer'] {
    return this.answers[kind](input)
  }

  private readonly answers: {
    [Kind in RecentKind]: (input: RecentQuestions[Kind]['input']) => RecentQuestions[Kind]['answer']
  } = {
    list: (input) => this.list(input),
    near: ({ workspaceId, namespaceId }) => this.near.of(workspaceId, namespaceId, this.options.clock()),
    limits: ({ namespaceId }) => this.limitsSeen.list(namespaceId),
    watch: (watch) => this.watches.start(watch, this.options.clock()),
    unwatch: ({ workspaceId, watchId }) => this.watches.stop(workspaceId, watchId),
    watches: ({ workspaceId }) => this.watches.of(workspaceId),
  }

  private list(input: RecentQuestions['list']['input']): RecentQuestions['list']['answer'] {
    const { filter, watchId, before, limit, top } = input
    const { workspaceId, outcomes } = filter
    const watched = watchId === null ? null : this.watches.eventsOf(workspaceId, watchId)
    const isOfRefusals =
      outcomes === 'refused' || (outcomes !== 'all' && outcomes.every((each) => isRefusal(each)))
    const events: ListedEvent[] = []
    const take = (event: RecentEvent): boolean => {
      if (isWanted(event, filter) && isBefore(event, this.options.thread, before))
        events.push({ ...event, thread: this.options.thread })
      return events.length < limit
    }
    if (watchId !== null) for (const event of watched?.toReversed() ?? []) if (!take(event)) break
    if (watchId === null) {
      // The ring of all goes back less far; what is older is taken from the refusals.
      let oldest = Number.POSITIVE_INFINITY
      if (!isOfRefusals)
        this.all.visit((event) => {
          oldest = event.sequence
          return take(event)
        })
      if (events.length < limit)
        this.refusals.visit((event) => (event.sequence >= oldest ? true : take(event)))
    }
    const full = (isOfRefusals ? this.refusals : this.all).fullSince
    const { passed, refused } = this.counts.get(workspaceId) ?? { passed: 0, refused: 0 }
    return {
      events,
      since: full ?? this.startedAt,
      counts: { passed, refused },
      refusedMost: top === 0 ? [] : this.refusedMost(workspaceId),
      isKnown: watchId === null || watched !== null,
    }
  }

  /** More than are wanted: what is refused most altogether may be far down the list of one thread. */
  private refusedMost(workspaceId: string): RefusedSubject[] {
    const from = this.options.clock() - REFUSED_MOST_MS
    const found = new Map<string, RefusedSubject>()
    this.refusals.visit((event) => {
      if (event.at < from) return false
      if (event.workspaceId !== workspaceId) return true
      const name = `${event.outcome}\n${event.keyId ?? event.namespaceId}\n${event.identifier ?? ''}`
      const subject = found.get(name)
      if (subject !== undefined) {
        subject.count++
        return true
      }
      const { keyId, keyName, namespaceId, namespaceName, identifier, outcome } = event
      found.set(name, { keyId, keyName, namespaceId, namespaceName, identifier, outcome, count: 1 })
      return true
    })
    return [...found.values()].sort((a, b) => b.count - a.count).slice(0, SUBJECTS_TOLD_MAX)
  }
}

export const REFUSALS_MAX = 8192
export const RECENT_MAX = 2048
/** How far back `refusedMost` looks. */
export const REFUSED_MOST_MS = 60_000
/** A thread has some 8 refusals of any other that it does not tell. */
const SUBJECTS_TOLD_MAX = 1000
const WORKSPACES_MAX = 10_000

/** Newest first, and one order for events of the same moment. */
export const byNewest = (a: EventCursor, b: EventCursor): number =>
  b.at - a.at || (a.thread === b.thread ? b.sequence - a.sequence : a.thread < b.thread ? -1 : 1)

function isBefore({ at, sequence }: RecentEvent, thread: string, before: EventCursor | null): boolean {
  return before === null || byNewest(before, { at, sequence, thread }) < 0
}

function clearVerification(event: RecentEvent): void {
  event.keyId = null
  event.keyName = null
  event.apiId = null
  event.identityId = null
  event.externalId = null
  event.limitName = null
  event.credits = -1
  event.tags = null
}
