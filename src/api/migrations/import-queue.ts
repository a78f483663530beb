import type { AuditActor } from '../../audit/log.ts'
import { BoundReached, isOfOnePlace } from '../../db/bounds.ts'
import type { Transaction } from '../../db/connect.ts'
import { Episode } from '../../episodes.ts'
import { ApiError } from '../../errors.ts'
import { listed } from '../../lib/listed.ts'
import { systemTimers, within } from '../../lib/timers.ts'
import { log } from '../../log.ts'
import type { Invalidate } from '../../records/database.ts'
import type { Invalidations } from '../../records/invalidations.ts'
import { type NewKey, writeNewKeys } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import { missingOf, readImportContext, resolveImport } from './imports.ts'
import {
  claimKeyImports,
  deleteKeyImports,
  failKeyImports,
  findDueKeyImports,
  findNextKeyImport,
  findTakenHashes,
  type KeyImportRow,
} from './store.ts'

type ImportServices = Pick<Services, 'sql' | 'database' | 'clock'> & { readonly invalidations: Invalidations }

/** The id that enqueueing touches; see `records/invalidations.ts`. */
export const KEY_IMPORTS = 'key imports'

/**
 * Creates the keys that migrations.enqueueKeys accepted. The queue is a table, so it survives crashes:
 *
 * 1. A round locks a batch of due rows, skipping rows that another server has locked. One transaction creates the keys and
 *    removes their rows. So each key is created once, and is either queued or created.
 * 2. A key that cannot be created (its API is gone, a role is missing, its hash exists) stays queued and is retried after
 *    2, 4, 8 … seconds, up to {@link RETRIES_MAX} times. Then the row is kept with the reason.
 * 3. When a batch fails as a whole, each key is tried alone, so that one bad row does not block others. When a workspace
 *    has reached a bound, its other keys of the batch are postponed untried; when one key has too much, only that key is.
 */
export class KeyImporter {
  readonly #services: ImportServices
  #timer: Timer | null = null
  #running: Promise<void> | null = null
  /** True when keys were enqueued during the current round. */
  #isWoken = false
  #isStopped = false

  constructor(services: ImportServices) {
    this.#services = services
  }

  /** Processes the queue now, and again whenever keys are added or due. */
  start(): void {
    this.#services.invalidations.onChange((touched) => {
      if (touched === null || touched.includes(KEY_IMPORTS)) this.#wake()
    })
    this.#wake()
  }

  /** Ends after the current batch, which is completed or rolled back. Waits {@link STOP_MS} at most. */
  async stop(): Promise<void> {
    this.#isStopped = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    if (this.#running !== null) await within(systemTimers, STOP_MS, this.#running, { late: () => {} })
  }

  #wake(): void {
    if (this.#isStopped) return
    this.#isWoken = true
    if (this.#running !== null) return
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#running = this.#run().then((waitMs) => {
      this.#running = null
      if (this.#isStopped) return
      if (this.#isWoken) this.#wake()
      else this.#timer = setTimeout(() => this.#wake(), waitMs)
    })
  }

  /** @returns ms until there is work again. */
  async #run(): Promise<number> {
    const { sql, clock } = this.#services
    try {
      while (!this.#isStopped) {
        this.#isWoken = false
        const ids = await findDueKeyImports(sql, { now: clock(), limit: BATCH_KEYS })
        if (ids.length === 0) break
        await this.#importBatch(ids)
      }
      const next = await findNextKeyImport(sql)
      const ended = waiting.end()
      if (ended !== null)
        log('info', 'key_import_resumed', 'enqueued keys are imported again', { awayMs: ended.lastedMs })
      // Rows locked by another server are due too: do not ask for them again at once.
      return next === null ? IDLE_MS : Math.min(IDLE_MS, Math.max(1000, next - clock()))
    } catch (cause) {
      if (waiting.begin())
        log('error', 'key_import_waiting', 'the import of enqueued keys waits for the database', {
          cause,
          retryMs: OUTAGE_MS,
        })
      return OUTAGE_MS
    }
  }

  async #importBatch(ids: readonly number[]): Promise<void> {
    try {
      await this.#import(ids)
    } catch (cause) {
      // A concurrent request created one of these keys or deleted one of their roles. The next round sees that.
      if (cause instanceof ApiError && !(cause instanceof BoundReached)) return
      if (outage.isOn) throw cause
      if (!(cause instanceof BoundReached))
        log(
          'warn',
          'key_import_batch_failed',
          'a batch of enqueued keys could not be imported; each key is tried alone',
          { cause, keys: ids.length },
        )
      for (let rest = ids; rest.length > 0; rest = rest.slice(1)) {
        const reached = await this.#importAlone(rest[0] as number) // `rest` is not empty
        if (reached !== null)
          await this.#putOff(isOfOnePlace(reached.bound) ? rest.slice(0, 1) : rest, reached)
      }
    }
  }

  /** @returns the bound that the key's workspace has reached; the key is not postponed yet. */
  async #importAlone(id: number): Promise<BoundReached | null> {
    try {
      await this.#import([id])
    } catch (cause) {
      if (cause instanceof BoundReached) return cause
      if (outage.isOn) throw cause // not the key's fault
      log('error', 'key_import_failed', 'an enqueued key could not be imported; it is tried again', {
        cause,
        import: id,
      })
      const now = this.#services.clock()
      await this.#services.database.write(async (tx) => {
        const rows = await claimKeyImports(tx, { ids: [id], now })
        await failKeyImports(
          tx,
          failuresOf(rows, () => 'the key could not be stored; the cause is in the log of the server', now),
          now,
        )
      })
    }
    return null
  }

  /** Postponed rows are no longer due, so trying them again does nothing. */
  async #putOff(ids: readonly number[], { workspaceId, message }: BoundReached): Promise<void> {
    const now = this.#services.clock()
    await this.#services.database.write(async (tx) => {
      const rows = await claimKeyImports(tx, { ids, now })
      const full = rows.filter((row) => row.workspaceId === workspaceId)
      await failKeyImports(
        tx,
        failuresOf(full, () => message, now),
        now,
      )
    })
  }

  async #import(ids: readonly number[]): Promise<void> {
    const { database, clock } = this.#services
    const now = clock()
    const givenUp = await database.write(async (tx, invalidate) => {
      const rows = await claimKeyImports(tx, { ids, now })
      const actors = Map.groupBy(rows, ({ workspaceId, rootKeyId, location, userAgent }) =>
        JSON.stringify([workspaceId, rootKeyId, location, userAgent]),
      )
      let count = 0
      for (const group of actors.values()) count += await importOf(tx, group, { invalidate, now })
      return count
    })
    if (givenUp > 0)
      log(
        'warn',
        'keys_not_imported',
        'enqueued keys failed after ten retries; the table key_imports has the reasons',
        { keys: givenUp },
      )
  }
}

/**
 * Creates the keys that one actor enqueued, with a fixed number of statements.
 * @returns how many keys were given up.
 */
async function importOf(
  tx: Transaction,
  rows: readonly KeyImportRow[],
  { invalidate, now }: { invalidate: Invalidate; now: number },
): Promise<number> {
  const [actor] = rows satisfies readonly AuditActor[]
  if (actor === undefined) return 0
  const context = await readImportContext(tx, actor.workspaceId, {
    apiIds: rows.map(({ apiId }) => apiId),
    keys: rows.map(({ key }) => key),
  })
  const taken = new Set(await findTakenHashes(tx, [...new Set(rows.map(({ key }) => key.hash))]))
  const reasons = new Map<number, string>()
  const keys: NewKey[] = []
  for (const { id, apiId, key } of rows) {
    const api = context.apis.get(apiId)
    const missingRoles = missingOf(key.roles, context.roles)
    const missingPermissions = missingOf(key.permissions, context.permissions)
    if (api === undefined || api.keyspaceId === null) reasons.set(id, `api ${apiId} not found`)
    else if (missingRoles.length > 0) reasons.set(id, `roles not found: ${listed(missingRoles)}`)
    else if (missingPermissions.length > 0)
      reasons.set(id, `permissions not found: ${listed(missingPermissions)}`)
    else if (taken.has(key.hash)) reasons.set(id, 'a key with this hash already exists')
    else {
      taken.add(key.hash)
      keys.push(resolveImport(key, { id: apiId }, context))
    }
  }
  const made = rows.filter(({ id }) => !reasons.has(id))
  const sealed = made.flatMap((row) => row.sealed ?? [])
  if (keys.length > 0) await writeNewKeys(tx, actor, keys, { sealed, invalidate, now })
  await deleteKeyImports(
    tx,
    made.map(({ id }) => id),
  )
  const failed = rows.filter(({ id }) => reasons.has(id))
  const failures = failuresOf(failed, ({ id }) => reasons.get(id) ?? '', now)
  await failKeyImports(tx, failures, now)
  return failures.filter(({ isFinal }) => isFinal).length
}

const failuresOf = (rows: readonly KeyImportRow[], reasonOf: (row: KeyImportRow) => string, now: number) =>
  rows.map((row) => {
    const attempts = row.attempts + 1
    return {
      id: row.id,
      attempts,
      reason: reasonOf(row),
      nextAt: now + 1000 * 2 ** attempts,
      isFinal: attempts > RETRIES_MAX,
    }
  })

const waiting = new Episode('key import')
const outage = new Episode('database')

const RETRIES_MAX = 10
const BATCH_KEYS = 100
/** How often a server looks at the queue without having been woken, ms. */
const IDLE_MS = 60_000
const STOP_MS = 3000
const OUTAGE_MS = 5000
