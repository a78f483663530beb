import type { SpillFile } from '../data-dir/spill.ts'
import type { Transaction } from '../db/connect.ts'
import { type Clock, DAY_MS, HOUR_MS } from '../lib/clock.ts'
import { newId, type WorkspaceId } from '../lib/ids.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import type { Database, Invalidate } from '../records/database.ts'
import type { Invalidations } from '../records/invalidations.ts'
import { type Erased, patternsOf, withoutNames } from './audit-events.ts'
import { eraseFromSpills } from './spills.ts'
import {
  deleteIdentities,
  deleteImportsOfKeys,
  deleteKeys,
  type ErasedKind,
  forgetErasures,
  holdCounts,
  insertErasedNames,
  listCountRanges,
  listIdentifierRanges,
  listUnfinished,
  listUnsweptNames,
  lockAuditEvents,
  lockKeysOf,
  markSwept,
  moveIdentifierCounts,
  moveIdentityCounts,
  moveKeyCounts,
  moveManyIdentifierCounts,
  renameTags,
  rewriteAuditEvents,
} from './store.ts'

/** The id that an erasure touches: servers then check their data directories; see `records/invalidations.ts`. */
export const ERASURES = 'erasures'

/** How long a call waits for the sweep at most, ms. */
export const ERASE_WAIT_MS = 20_000

/** State of an erasure. */
export type Erasure = {
  /** Replaces the erased names in usage and audit events. */
  pseudonym: string
  /** False = the sweep continues in the background. */
  complete: boolean
}

type Name = { kind: ErasedKind; name: string; pseudonym: string }

/**
 * Erases a person from all stored data, in the background of the call that requests it.
 *
 * 1. The operation records the names with their pseudonyms in `erasures`, and revokes and empties the things that carry
 *    them. From then on no answer shows the names, and new usage gets the pseudonyms.
 * 2. A sweep deletes the identity's keys in batches (their ids become names too), rewrites audit events and moves usage of
 *    each name, in transactions of bounded size. Each step looks for remaining rows, so an interrupted sweep is simply
 *    started again: by a repeated call, or by a server that finds it unfinished.
 * 3. A swept name stays as a hash for {@link HASHES_KEPT_MS}, for usage that arrives late.
 */
export class Eraser {
  readonly #database: Database
  readonly #invalidations: Invalidations
  readonly #spills: () => Iterable<SpillFile>
  readonly #clock: Clock
  readonly #batchRows: number
  /** Running sweeps of this thread, by subject. */
  readonly #sweeps = new Map<string, Promise<void>>()
  #timer: Timer | null = null
  #isStopped = false

  constructor(options: {
    database: Database
    invalidations: Invalidations
    /** All files in the data directory that wait to be sent or were refused. */
    spills: () => Iterable<SpillFile>
    clock: Clock
    /** Rows changed by one transaction. */
    batchRows?: number
  }) {
    this.#database = options.database
    this.#invalidations = options.invalidations
    this.#spills = options.spills
    this.#clock = options.clock
    this.#batchRows = options.batchRows ?? 500
  }

  /** Called on one thread of a process: resumes unfinished sweeps, and erases names in the data directory. */
  start(): void {
    this.#invalidations.onChange((touched) => {
      if (touched?.includes(ERASURES)) void this.#logged(() => this.#eraseFromSpills())
    })
    // At start it resumes all: one that this server's stop interrupted may be only a second old.
    let sinceMs = 0
    const round = async () => {
      await this.#logged(async () => {
        await forgetErasures(this.#database.sql, this.#clock() - HASHES_KEPT_MS)
        const left = await listUnfinished(this.#database.sql, this.#clock() - sinceMs)
        sinceMs = MOMENT_MS
        for (const { workspaceId, subject } of left) await this.sweep(workspaceId, subject)
        if (left.length > 0) await this.#eraseFromSpills()
      })
      if (!this.#isStopped) this.#timer = setTimeout(round, HOUR_MS)
    }
    this.#timer = setTimeout(round, 0)
  }

  /** Running sweeps end after their current transaction. */
  async stop(): Promise<void> {
    this.#isStopped = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    await within(systemTimers, STOP_MS, Promise.allSettled(this.#sweeps.values()), { late: () => {} })
  }

  /**
   * Waits up to `ms` for the sweep of an erasure. A late sweep continues.
   * @returns whether the sweep is complete.
   */
  async finishWithin(ms: number, workspaceId: WorkspaceId, subject: string): Promise<boolean> {
    const done = this.sweep(workspaceId, subject).then(() => true)
    return await within(systemTimers, ms, done, { late: () => false })
  }

  /** @throws the database's error; the sweep can then be started again. */
  sweep(workspaceId: WorkspaceId, subject: string): Promise<void> {
    const running = this.#sweeps.get(subject)
    if (running !== undefined) return running
    const sweep = this.#sweep(workspaceId, subject).finally(() => this.#sweeps.delete(subject))
    this.#sweeps.set(subject, sweep)
    return sweep
  }

  async #sweep(workspaceId: WorkspaceId, subject: string): Promise<void> {
    while (await this.#deleteKeys(workspaceId, subject)) await this.#sweepKeys(workspaceId, subject)
    await this.#sweepKeys(workspaceId, subject)
    // Audit events may contain earlier identities with the same external id, and keys deleted before: these become names
    // too.
    for (let left = await this.#unswept(workspaceId, subject); left.length > 0; ) {
      await this.#rewriteEvents(workspaceId, subject, left)
      for (const name of left) {
        if (name.kind === 'identity') await this.#moveIdentityCounts(workspaceId, name)
        if (name.kind === 'external') await this.#write((tx) => renameTags(tx, workspaceId, name))
      }
      await this.#moveIdentifierCounts(workspaceId, left)
      await this.#write(async (tx, invalidate) => {
        const names = left.map(({ name }) => name)
        await deleteIdentities(tx, workspaceId, names)
        await markSwept(tx, workspaceId, names)
        invalidate(ERASURES)
      })
      await this.#sweepKeys(workspaceId, subject)
      left = await this.#unswept(workspaceId, subject)
    }
    await this.#eraseFromSpills()
  }

  /** @returns false when no keys were left. */
  async #deleteKeys(workspaceId: WorkspaceId, subject: string): Promise<boolean> {
    return await this.#write(async (tx, invalidate) => {
      const names = await listUnsweptNames(tx, workspaceId, subject, NAMES_MAX)
      const namesOf = (kind: ErasedKind) => names.filter((name) => name.kind === kind).map(({ name }) => name)
      const keysOf = { identityIds: namesOf('identity'), ownerIds: namesOf('external') }
      if (keysOf.identityIds.length + keysOf.ownerIds.length === 0) return false
      const keys = await lockKeysOf(tx, workspaceId, keysOf, KEYS_MAX)
      if (keys.length === 0) return false
      await holdCounts(tx)
      const erased = keys.map(({ id, apiId }) => ({
        kind: 'key' as const,
        name: id,
        pseudonym: newId('erased'),
        subject,
        apiId,
      }))
      await insertErasedNames(tx, workspaceId, erased, this.#clock())
      const ids = keys.map(({ id }) => id)
      await deleteImportsOfKeys(tx, workspaceId, ids)
      await deleteKeys(tx, workspaceId, ids)
      invalidate(...ids)
      return true
    })
  }

  async #sweepKeys(workspaceId: WorkspaceId, subject: string): Promise<void> {
    for (;;) {
      const keys = (await this.#unswept(workspaceId, subject)).filter(({ kind }) => kind === 'key')
      if (keys.length === 0) return
      await this.#rewriteEvents(workspaceId, subject, keys)
      for (const key of keys)
        await this.#untilFewer((tx) => moveKeyCounts(tx, workspaceId, key, this.#batchRows))
      await this.#moveIdentifierCounts(workspaceId, keys)
      const names = keys.map(({ name }) => name)
      await this.#write((tx) => markSwept(tx, workspaceId, names))
    }
  }

  /** Ids of keys come first in the list. */
  async #unswept(workspaceId: WorkspaceId, subject: string): Promise<Name[]> {
    return await this.#write((tx) => listUnsweptNames(tx, workspaceId, subject, NAMES_MAX))
  }

  async #rewriteEvents(workspaceId: WorkspaceId, subject: string, left: readonly Name[]): Promise<void> {
    const names: Erased = new Map(left.map(({ name, ...erased }) => [name, erased]))
    const patterns = patternsOf(names)
    await this.#untilFewer(async (tx) => {
      const events = await lockAuditEvents(tx, workspaceId, patterns, this.#batchRows)
      const identityIds = new Set<string>()
      const deletedKeys = new Map<string, string | null>()
      const rewritten = events.map((event) => {
        const { identityIds: found, deletedKey, ...changed } = withoutNames(event, names)
        for (const id of found) identityIds.add(id)
        if (deletedKey !== null) deletedKeys.set(deletedKey.id, deletedKey.apiId)
        return { id: event.id, occurredAt: event.occurredAt, ...changed }
      })
      const earlier = [...identityIds].map((name) => ({
        kind: 'identity' as const,
        name,
        pseudonym: subject,
        subject,
        apiId: null,
      }))
      const keys = [...deletedKeys].map(([name, apiId]) => ({
        kind: 'key' as const,
        name,
        pseudonym: newId('erased'),
        subject,
        apiId,
      }))
      await insertErasedNames(tx, workspaceId, [...earlier, ...keys], this.#clock())
      await rewriteAuditEvents(tx, rewritten)
      return events.length
    })
  }

  async #moveIdentityCounts(workspaceId: WorkspaceId, name: Name): Promise<void> {
    for (const range of await this.#write((tx) => listCountRanges(tx, workspaceId)))
      await this.#untilFewer((tx) =>
        moveIdentityCounts(tx, workspaceId, name, { ...range, limit: this.#batchRows }),
      )
  }

  /** A few names are searched one by one. For many it is cheaper to read all identifiers. */
  async #moveIdentifierCounts(workspaceId: WorkspaceId, names: readonly Name[]): Promise<void> {
    if (names.length <= LOOKED_FOR_MAX) {
      for (const name of names)
        await this.#untilFewer((tx) => moveIdentifierCounts(tx, workspaceId, name, this.#batchRows))
      return
    }
    for (const range of await this.#write((tx) => listIdentifierRanges(tx, workspaceId)))
      await this.#untilFewer((tx) =>
        moveManyIdentifierCounts(tx, names, { ...range, limit: this.#batchRows }),
      )
  }

  /** @param step Changes some rows. @returns how many; fewer than a batch = there are no more. */
  async #untilFewer(step: (tx: Transaction) => Promise<number>): Promise<void> {
    while ((await this.#write(step)) >= this.#batchRows);
  }

  async #write<T>(work: (tx: Transaction, invalidate: Invalidate) => Promise<T>): Promise<T> {
    if (this.#isStopped) throw new Error('the server stops; its next start goes on with the erasure')
    return await this.#database.write(work, { timeoutMs: STEP_MS })
  }

  async #eraseFromSpills(): Promise<void> {
    await eraseFromSpills(this.#database.sql, this.#spills())
  }

  async #logged(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (cause) {
      if (!this.#isStopped)
        log(
          'warn',
          'erasure_unfinished',
          'an erasure could not be finished; the next attempt is within an hour',
          { cause },
        )
    }
  }
}

/** Usage may arrive this late. A server that was off for longer can bring back names from its data directory. */
export const HASHES_KEPT_MS = 7 * DAY_MS
/** Younger erasures may be running on another server. */
const MOMENT_MS = 60_000
const NAMES_MAX = 200
const LOOKED_FOR_MAX = 8
const KEYS_MAX = 100
/** For one transaction: a few hundred rows, and waiting for locks on them. */
const STEP_MS = 30_000
const STOP_MS = 3_000
