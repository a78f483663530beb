import { type Cancel, systemTimers, type Timers } from '../lib/timers.ts'
import { copyEvent, RecentEvent } from './event.ts'

/** What is watched: a key, an identity, or an identifier in a namespace. */
export type Watched =
  | { kind: 'key'; keyId: string }
  /** By its id, or its external id. */
  | { kind: 'identity'; identity: string }
  | { kind: 'identifier'; namespaceId: string; identifier: string }

export type Watch = {
  id: string
  workspaceId: string
  watched: Watched
  /** As it was asked for, for lists. */
  namespaceName: string | null
  /** Unix ms. */
  startedAt: number
  endsAt: number
}

/** A watch and what one thread has of it. */
export type WatchState = Watch & {
  /** Events kept. */
  kept: number
  /** Events that came when {@link WATCH_EVENTS_MAX} were kept. */
  missed: number
}

export const WATCH_MS = 15 * 60_000
/** In a process, of all workspaces. */
export const WATCHES_MAX = 20
/** Of a workspace: one tenant must not take all. */
export const WORKSPACE_WATCHES_MAX = 10
/** Of a watch, in each HTTP thread. */
export const WATCH_EVENTS_MAX = 10_000
/** How long the events of a watch can be read after its end. */
export const WATCH_KEPT_MS = 15 * 60_000

type Kept = { watch: Watch; events: RecentEvent[]; missed: number; cancel: Cancel }

/** Keeps every event of what is watched, until its watch ends or is full. */
export class Watches {
  private readonly kept = new Map<string, Kept>()
  /** Those that may still take events; null = none, which is all that an event without a watch tests. */
  private open: Kept[] | null = null

  constructor(private readonly timers: Pick<Timers, 'after'> = systemTimers) {}

  /** @returns false when there are too many already. */
  start(watch: Watch, now: number): boolean {
    const ofWorkspace = this.of(watch.workspaceId).length
    if (this.kept.size >= WATCHES_MAX || ofWorkspace >= WORKSPACE_WATCHES_MAX) return false
    const leftMs = watch.endsAt + WATCH_KEPT_MS - now
    const cancel = this.timers.after(Math.max(0, leftMs), () => this.drop(watch.id))
    this.kept.set(watch.id, { watch, events: [], missed: 0, cancel })
    this.reopen()
    return true
  }

  /** Ends a watch and forgets its events. @returns false when there is none of this id in the workspace. */
  stop(workspaceId: string, watchId: string): boolean {
    if (this.kept.get(watchId)?.watch.workspaceId !== workspaceId) return false
    this.drop(watchId)
    return true
  }

  /** Forgets all. */
  close(): void {
    for (const id of [...this.kept.keys()]) this.drop(id)
  }

  /** Whether a watch may want the event. One test of null while there is no watch. */
  isWatched(event: RecentEvent): boolean {
    if (this.open === null) return false
    for (const { watch } of this.open)
      if (watch.workspaceId === event.workspaceId && isOf(event, watch.watched)) return true
    return false
  }

  /** Keeps the event for each watch of it. @param event Complete, but for its address. */
  note(event: RecentEvent, addressOf: () => string | null): void {
    for (const each of this.open ?? []) {
      const { watch } = each
      if (watch.workspaceId !== event.workspaceId || !isOf(event, watch.watched)) continue
      if (event.at >= watch.endsAt) continue
      if (each.events.length >= WATCH_EVENTS_MAX) {
        each.missed++
        continue
      }
      const copy = new RecentEvent()
      copyEvent(copy, event)
      copy.address = addressOf()
      // One text for all: each request brings its own copy of it.
      if (watch.watched.kind === 'identifier') copy.identifier = watch.watched.identifier
      each.events.push(copy)
    }
  }

  /** Watches of a workspace, oldest first. */
  of(workspaceId: string): WatchState[] {
    return [...this.kept.values()]
      .filter(({ watch }) => watch.workspaceId === workspaceId)
      .map(({ watch, events, missed }) => ({ ...watch, kept: events.length, missed }))
  }

  /** All, for a thread that starts. */
  all(): Watch[] {
    return [...this.kept.values()].map(({ watch }) => watch)
  }

  /** Events of a watch, oldest first; null = there is none of this id in the workspace. */
  eventsOf(workspaceId: string, watchId: string): readonly RecentEvent[] | null {
    const kept = this.kept.get(watchId)
    return kept?.watch.workspaceId === workspaceId ? kept.events : null
  }

  private drop(id: string): void {
    this.kept.get(id)?.cancel()
    this.kept.delete(id)
    this.reopen()
  }

  private reopen(): void {
    this.open = this.kept.size === 0 ? null : [...this.kept.values()]
  }
}

function isOf(event: RecentEvent, watched: Watched): boolean {
  switch (watched.kind) {
    case 'key':
      return event.keyId === watched.keyId
    case 'identity':
      return event.identityId === watched.identity || event.externalId === watched.identity
    case 'identifier':
      return event.identifier === watched.identifier && event.namespaceId === watched.namespaceId
    default:
      return watched satisfies never
  }
}
