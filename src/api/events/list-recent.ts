import { notFound } from '../../errors.ts'
import type { EventFilter } from '../../recent/event.ts'
import { byNewest, type EventCursor, type ListedEvent, type RefusedSubject } from '../../recent/recent.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type RecallServices, requireRecall } from './recall.ts'

export type RecentQuestion = Omit<EventFilter, 'workspaceId'> & {
  /** Only of the events that this watch keeps. */
  watchId: string | null
  before: EventCursor | null
  limit: number
  /** How many subjects to name in `refusedMost`. */
  top: number
}

export type RecentList = {
  /** Newest first. */
  events: ListedEvent[]
  /** Older events follow. */
  next: EventCursor | null
  /** Unix ms: everything that was asked for is remembered from here on. */
  since: number
  passed: number
  refused: number
  refusedMost: RefusedSubject[]
  isComplete: boolean
}

/**
 * Events of the workspace that this process remembers, of all its threads.
 * @throws ApiError NOT_FOUND for an unknown watch; as {@link requireRecall}.
 */
export async function listRecent(
  services: RecallServices & Pick<Services, 'clock'>,
  { workspaceId }: Actor,
  { watchId, before, limit, top, ...filter }: RecentQuestion,
): Promise<RecentList> {
  const recall = requireRecall(services)
  const input = { filter: { ...filter, workspaceId }, watchId, before, limit: limit + 1, top }
  const { answers, isComplete } = await recall('list', input)
  if (watchId !== null && !answers.some(({ isKnown }) => isKnown)) throw notFound('watch', watchId)
  const found = answers.flatMap(({ events }) => events).sort(byNewest)
  const events = found.slice(0, limit)
  const last = events.at(-1)
  return {
    events,
    next: found.length > limit && last !== undefined ? last : null,
    since: Math.max(...answers.map(({ since }) => since)),
    passed: answers.reduce((sum, { counts }) => sum + counts.passed, 0),
    refused: answers.reduce((sum, { counts }) => sum + counts.refused, 0),
    refusedMost: summed(
      answers.flatMap(({ refusedMost }) => refusedMost),
      top,
    ),
    isComplete,
  }
}

function summed(subjects: readonly RefusedSubject[], top: number): RefusedSubject[] {
  const sums = new Map<string, RefusedSubject>()
  for (const each of subjects) {
    const name = `${each.outcome}\n${each.keyId ?? each.namespaceId}\n${each.identifier ?? ''}`
    const sum = sums.get(name)
    if (sum === undefined) sums.set(name, { ...each })
    else sum.count += each.count
  }
  return [...sums.values()].sort((a, b) => b.count - a.count).slice(0, top)
}
