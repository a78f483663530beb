import type { Spill, Spills, UnreadSpill } from '../../src/data-dir/spill.ts'
import type { AnySql, Sql, Transaction } from '../../src/db/connect.ts'
import { QueryGivenUp } from '../../src/db/guarded-pool.ts'
import { CELL_BYTES, SEGMENT_FORMAT, type Segment, unpackSegment } from '../../src/limiter/flush/segment.ts'
import type { HashRange, StoredNode, WindowStore } from '../../src/limiter/flush/store.ts'
import type { SpentRow } from '../../src/verify/store.ts'
import type { Thread, World } from './world.ts'

/** The content of a segment for one window. */
export type WindowCopy = { nodeId: string; cell: string; endMs: number; used: number; owner: number }
type StoredSegment = { nodeId: string; generation: number; segment: Segment; copies: WindowCopy[] }

/** The name of a cell, as text. */
export const cellNameOf = (words: readonly number[]): string =>
  words.map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('')

export function copiesOf(nodeId: string, { cells }: Segment): WindowCopy[] {
  const copies: WindowCopy[] = []
  unpackSegment(Buffer.from(cells, 'hex'), (h0, h1, h2, h3, endMs, used, owner) =>
    copies.push({ nodeId, cell: cellNameOf([h0, h1, h2, h3]), endMs, used, owner }),
  )
  return copies
}

/** The copy that a start would use: the newest end, and of that the highest count. */
export function latestOf(copies: readonly WindowCopy[]): WindowCopy | undefined {
  let latest = copies[0]
  for (const copy of copies)
    if (latest === undefined || copy.endMs > latest.endMs) latest = copy
    else if (copy.endMs === latest.endMs && copy.used > latest.used) latest = copy
  return latest
}

/**
 * A Postgres in memory: it carries out the program's statements, and can fail in every way. It replaces the driver, so
 * everything above is the program's own code. A statement takes effect at one moment; a transaction at its commit.
 */
export class Postgres {
  mode: 'healthy' | 'slow' | 'flaky' | 'frozen' | 'away' = 'healthy'
  /** Since when it has answered everything in time: minus infinity = always; infinity = it does not. */
  healthySinceMs = Number.NEGATIVE_INFINITY
  /** The same, for answering at once. */
  quickSinceMs = Number.NEGATIVE_INFINITY
  readonly segments = new Map<number, StoredSegment>()
  private lastSegment = 0
  readonly keys = new Map<string, KeyRow>()
  readonly keyByHash = new Map<string, KeyRow>()
  private readonly lastBatches = new Map<string, number>()
  private readonly listeners = new Set<Listener>()
  /** Statements waiting for the end of a freeze. */
  private frozen: (() => void)[] = []
  onUsage: (writer: string, cells: UsageCells) => void = () => {}
  onWindowsRead: (reader: object, copies: WindowCopy[]) => void = () => {}
  onChanged: (key: KeyRow) => void = () => {}

  /** @param clock The database's own clock, which is right. */
  constructor(
    readonly world: World,
    readonly clock: () => number,
  ) {}

  setMode(mode: Postgres['mode']): void {
    const { world } = this
    world.note(() => `postgres: ${mode}`)
    if (mode !== 'healthy' || this.mode !== 'healthy')
      this.quickSinceMs = mode === 'healthy' ? world.nowMs : Number.POSITIVE_INFINITY
    this.mode = mode
    if (mode !== 'healthy' && mode !== 'slow') this.healthySinceMs = Number.POSITIVE_INFINITY
    else if (this.healthySinceMs === Number.POSITIVE_INFINITY) this.healthySinceMs = world.nowMs
    if (mode === 'frozen') return
    for (const execute of this.frozen.splice(0)) world.after(world.between(0, 50), null, execute)
    if (mode === 'away') this.breakListeners()
  }

  /**
   * Runs one statement of a thread. It takes effect at one moment between sending and answering, or some time after it was
   * given up, or never.
   * @param timeoutMs Time after which the caller gives up.
   */
  run<T>(thread: Thread, timeoutMs: number, name: string, execute: () => T): Promise<T> {
    const { world } = this
    const answer = Promise.withResolvers<T>()
    const settled = Promise.withResolvers<void>()
    let isOver = false
    const conclude = (settle: () => void) => {
      if (isOver) return
      isOver = true
      deadline.run = null
      settle()
    }
    const fails = (afterMs: number, message: string) =>
      world.after(afterMs, thread, () => {
        settled.resolve()
        conclude(() => answer.reject(connectionError(message)))
      })
    const carryOut = () => {
      let outcome: { value: T } | { error: unknown }
      try {
        outcome = { value: execute() }
      } catch (error) {
        outcome = { error }
      }
      return outcome
    }
    const carryOutAndAnswer = () => {
      const outcome = carryOut()
      world.after(this.latency(), thread, () => {
        settled.resolve()
        conclude(() => {
          if ('value' in outcome) answer.resolve(outcome.value)
          else answer.reject(outcome.error)
        })
      })
    }
    // A timer of the thread: a caller that gives up does not know whether the statement was carried out.
    const deadline = world.after(timeoutMs, thread, () =>
      conclude(() => answer.reject(new QueryGivenUp(`no answer within ${timeoutMs} ms`, settled.promise))),
    )
    if (this.mode === 'away') {
      fails(world.between(0.1, 5), 'the connection was refused')
      return answer.promise
    }
    if (this.mode === 'flaky' && world.chance(0.4)) {
      const fate = world.pick(['lost before', 'lost after', 'late'])
      world.note(() => `postgres: ${name} of ${thread.name} will be ${fate}`)
      const breaksAfterMs = world.between(0.1, 200)
      fails(breaksAfterMs, 'the connection broke')
      if (fate === 'lost after') world.after(breaksAfterMs / 2, null, carryOut)
      // The client's end broke. The server has the statement in its buffer and runs it later.
      if (fate === 'late') world.after(breaksAfterMs + world.between(0, 3_000), null, carryOut)
      return answer.promise
    }
    world.after(this.latency(), null, () => {
      if (this.mode === 'away') fails(world.between(0, 10), 'the connection broke')
      else if (this.mode === 'frozen') this.frozen.push(carryOutAndAnswer)
      else carryOutAndAnswer()
    })
    return answer.promise
  }

  private latency(): number {
    return this.mode === 'slow' ? this.world.between(80, 120) : this.world.between(0.05, 1)
  }

  // Rate limit windows.

  /** @param reader The object that is recorded as having read the rows. */
  windowStore(thread: Thread, reader: object = thread): Pick<WindowStore, keyof WindowStore> {
    let breakOff = Promise.withResolvers<never>()
    const run = <T>(name: string, execute: () => T): Promise<T> =>
      Promise.race([this.run(thread, WINDOWS_TIMEOUT_MS, name, execute), breakOff.promise])
    breakOff.promise.catch(() => {})
    const deleteEnded = (beforeMs: number, rowsMax: number) =>
      this.deleteSegments(rowsMax, ({ segment }) => segment.endsAt < beforeMs) < rowsMax
    return {
      connections: 1,
      segmentsMax: 2,
      writeSegments: (nodeId, generation, segments) =>
        run('segments', () => {
          for (const segment of segments) {
            const copies = copiesOf(nodeId, segment)
            this.segments.set(++this.lastSegment, { nodeId, generation, segment, copies })
          }
        }),
      deleteSuperseded: ({ nodeId, hashes, generation, rowsMax }) =>
        run('supersede', () => {
          const isSuperseded = (stored: StoredSegment) =>
            stored.nodeId === nodeId &&
            stored.generation < generation &&
            stored.segment.firstHash >= hashes.first &&
            stored.segment.lastHash <= hashes.last
          return this.deleteSegments(rowsMax, isSuperseded) < rowsMax
        }),
      list: (hashes, nowMs) => run('list', () => this.nodesOf(hashes, nowMs)),
      readRows: async () => [], // rows of earlier releases
      readSegments: (ids) =>
        run('restore segments', () => {
          const stored = ids.flatMap((id) => this.segments.get(id) ?? [])
          for (const { copies } of stored) this.onWindowsRead(reader, copies)
          return stored.map(({ segment }) => ({
            format: SEGMENT_FORMAT,
            cells: Buffer.from(segment.cells, 'hex'),
          }))
        }),
      deleteEnded: ({ nowMs, afterMs, rowsMax }) =>
        run('delete', () => deleteEnded(Math.min(nowMs, this.clock()) - afterMs, rowsMax)),
      close: async () => {
        breakOff.reject(connectionError('closed'))
        breakOff = Promise.withResolvers<never>()
        breakOff.promise.catch(() => {})
      },
    }
  }

  /** The copy that a start would use. */
  windowOf(cell: string, nodeId: string): WindowCopy | undefined {
    const copies: WindowCopy[] = []
    for (const stored of this.segments.values())
      if (stored.nodeId === nodeId) copies.push(...stored.copies.filter((copy) => copy.cell === cell))
    return latestOf(copies)
  }

  private nodesOf(hashes: HashRange, nowMs: number): StoredNode[] {
    const nodes = new Map<string, StoredNode>()
    const nodeOf = (nodeId: string) => {
      const node = nodes.get(nodeId) ?? { nodeId, rows: 0, segments: [] }
      nodes.set(nodeId, node)
      return node
    }
    for (const [id, { nodeId, generation, segment, copies }] of this.segments)
      if (segment.endsAt > nowMs && segment.firstHash <= hashes.last && segment.lastHash >= hashes.first)
        nodeOf(nodeId).segments.push({ id, generation, bytes: CELL_BYTES * copies.length })
    return [...nodes.values()]
  }

  private deleteSegments(countMax: number, isToGo: (stored: StoredSegment) => boolean): number {
    let deleted = 0
    for (const [id, stored] of this.segments) {
      if (deleted === countMax || !isToGo(stored)) continue
      this.segments.delete(id)
      deleted++
    }
    return deleted
  }

  // Keys and usage.

  /** A pool of that thread. */
  pool(thread: Thread, timeoutMs: number) {
    const sql = this.sqlOf((text, values) => {
      const statement = this.statement(text, values)
      return this.run(thread, timeoutMs, statement.name, statement.execute)
    })
    const transaction = async <T>(work: (tx: Transaction) => T | Promise<T>): Promise<T> => {
      const effects: (() => void)[] = []
      const tx = this.sqlOf((text, values) => {
        const statement = this.statement(text, values)
        // Reads see the current state, and no other transaction changes the same rows: writes take effect at the commit.
        effects.push(statement.execute)
        return this.run(thread, timeoutMs, statement.name, () => [{}])
      })
      await this.run(thread, timeoutMs, 'begin', () => {})
      const value = await work(tx)
      await this.run(thread, timeoutMs, 'commit', () => {
        if (this.world.chance(0.02)) throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
        for (const effect of effects) effect()
      })
      return value
    }
    return { sql, transaction }
  }

  /** The two forms that the program uses: a tagged template, and `unsafe` with parameters. */
  private sqlOf(run: (text: string, values: readonly unknown[]) => Promise<unknown>): AnySql {
    const tagged = (strings: TemplateStringsArray, ...values: unknown[]) =>
      FRAGMENT.test(strings[0] ?? '') ? null : run(strings[0] ?? '', values)
    const unsafe = (text: string, values: unknown[]) => run(text, values)
    return Object.assign(tagged, { unsafe }) as unknown as AnySql // it has everything that is called
  }

  private statement(text: string, values: readonly unknown[]): { name: string; execute: () => unknown } {
    if (text.includes('pg_notify')) return { name: 'notify', execute: () => this.notify(String(values[1])) }
    if (text.includes('spend_credits'))
      // With the types of the program, see spendCredits.
      return { name: 'spend', execute: () => this.spend(...(values as [string[], number[]])) } // see above
    if (text.includes('with weighed as materialized'))
      return { name: 'find keys', execute: () => this.findKeys(values[0] as string[]) } // as the program types it
    if (text.includes('with held as materialized')) return { name: 'full hours', execute: () => [] } // an hour has room for all there are
    if (text.includes('with held as')) return { name: 'refill', execute: () => this.refill(values) }
    if (text.includes('apply_usage_batch'))
      return { name: 'usage', execute: () => [{ counted: this.applyBatch(values as UsageValues) }] } // see countBatch
    if (text.includes('make_usage_month')) return { name: 'month', execute: () => [] }
    if (text.includes('update keys set deleted_at'))
      return { name: 'delete key', execute: () => this.setDeleted(String(values[3]), Number(values[0])) }
    if (text.includes('count_rows')) return { name: 'count', execute: () => [] } // the counts stay within bounds
    if (text === SIMULATED) return { name: 'write', execute: values[0] as () => unknown } // given by the sender
    // Not reported as a database error: the program would cope with that, and the statement would not be noticed.
    const problem = `a statement that the simulation does not know: ${text}`
    this.world.fail(problem)
    throw new Error(problem)
  }

  private findKeys(hashes: string[]): unknown[] {
    return hashes.flatMap((hash, index) =>
      this.findKey(hash).map((row) => ({
        at: index + 1,
        weight: 1000,
        heavyOf: row.workspaceId,
        isLeft: false,
        ...row,
      })),
    )
  }

  private findKey(hash: string): Record<string, unknown>[] {
    const key = this.keyByHash.get(hash)
    if (key === undefined || key.deletedAt !== null) return []
    const { remaining, refillAmount, lastRefillAt } = key
    return [
      {
        id: key.id,
        hash,
        workspaceId: 'ws_1',
        keyspaceId: 'ks_1',
        apiId: 'api_1',
        forWorkspaceId: null,
        isOperator: false,
        workspaceEnabled: true,
        name: String(key.version),
        ownerId: null,
        meta: null,
        environment: null,
        enabled: key.enabled,
        expiresAt: null,
        ipWhitelist: null,
        creditsSeen: remaining,
        refillAmount,
        refillDay: null,
        lastRefillAt,
        createdAt: key.createdAt,
        identityId: null,
        identityExternalId: null,
        identityMeta: null,
        limits: key.limits,
        roles: [],
        permissions: [],
      },
    ]
  }

  /** Does not wait for locked keys: the program's waiting only saves time. */
  private spend(keyIds: string[], costs: number[]): unknown[] {
    const rows: SpentRow[] = []
    // By key, as the SQL function does, so answers are not in the order of the calls.
    for (const id of [...new Set(keyIds)].sort()) {
      const key = this.keys.get(id)
      if (key === undefined || key.deletedAt !== null) continue
      for (const [call, keyId] of keyIds.entries()) {
        if (keyId !== id) continue
        if (key.lockedUntilMs > this.world.nowMs) {
          rows.push({ call, passed: null, remaining: null })
          continue
        }
        const cost = costs[call] as number // one for each key id
        const passed = key.remaining === null || cost <= key.remaining
        if (passed && key.remaining !== null) {
          key.remaining -= cost
          key.spent += cost
        }
        rows.push({ call, passed, remaining: key.remaining })
      }
    }
    return rows
  }

  /** The values in the order of `applyRefill`; the second is the fragment that adds. */
  private refill(values: readonly unknown[]): unknown[] {
    const [id, , now, , amount, lastAt] = values as [string, null, number, number, number, number | null] // see above
    const key = this.keys.get(id)
    if (key === undefined || key.deletedAt !== null || key.lockedUntilMs > this.world.nowMs)
      return [{ isHeld: false }]
    if (key.remaining === null || key.refillAmount !== amount || key.lastRefillAt !== lastAt)
      return [{ isHeld: true }]
    key.remaining += amount
    key.lastRefillAt = now
    key.refills++
    return [{ isHeld: true }]
  }

  private setDeleted(id: string, now: number): unknown[] {
    const key = this.keys.get(id)
    if (key === undefined || key.deletedAt !== null) return []
    key.deletedAt = now
    key.deletedVersion = key.version + 1
    this.changed(key)
    return [{}]
  }

  changed(key: KeyRow): void {
    key.version++
    this.world.note(() => `postgres: ${key.id} is now ${describeKey(key)}`)
    this.onChanged(key)
  }

  // Usage: the columns that the simulation checks, which are counts by key and hour and by identifier and hour.

  private applyBatch(values: UsageValues): boolean {
    const [writer, number] = values
    if ((this.lastBatches.get(writer) ?? 0) >= number) return false
    this.lastBatches.set(writer, number)
    this.onUsage(writer, usageCellsOf(values))
    return true
  }

  /** Receives later commits of others. */
  isListening(thread: Thread): boolean {
    for (const listener of this.listeners) if (listener.thread === thread) return !listener.isBroken
    return false
  }

  isCounted(writer: string, number: number): boolean {
    return (this.lastBatches.get(writer) ?? 0) >= number
  }

  // Notifications.

  /** A connection as `Changes.listen` needs it. */
  listen(thread: Thread): Sql {
    const listen = async (_: string, heard: (payload: string) => void, connected: () => void) => {
      const listener: Listener = { thread, heard, connected, isBroken: false, lastArrivalMs: 0 }
      this.listeners.add(listener)
      connected()
    }
    return { listen } as unknown as Sql // nothing else of it is called
  }

  /** Breaks the listening connections. Notifications sent before they are reopened are lost. */
  breakListeners(): void {
    for (const listener of this.listeners) {
      if (listener.thread.isDead) this.listeners.delete(listener)
      if (listener.isBroken) continue
      listener.isBroken = true
      this.reconnect(listener)
    }
  }

  private reconnect(listener: Listener): void {
    this.world.after(this.world.between(100, 1_000), listener.thread, () => {
      if (this.mode === 'away' || this.mode === 'frozen') this.reconnect(listener)
      else {
        listener.isBroken = false
        listener.connected()
      }
    })
  }

  private notify(payload: string): unknown[] {
    for (const listener of this.listeners) {
      if (listener.isBroken) continue
      const atMs = Math.max(listener.lastArrivalMs, this.world.nowMs + this.latency())
      listener.lastArrivalMs = atMs
      this.world.at(atMs, listener.thread, () => {
        if (!listener.isBroken) listener.heard(payload)
      })
    }
    return []
  }
}

export type KeyRow = {
  readonly id: string
  readonly text: string
  remaining: number | null
  enabled: boolean
  deletedAt: number | null
  readonly createdAt: number
  refillAmount: number | null
  lastRefillAt: number | null
  /** Locked by a transaction outside of the simulation. */
  lockedUntilMs: number
  limits: { id: string; name: string; limit: number; durationMs: number; autoApply: boolean; owner: 'key' }[]
  /** Credits spent and number of refills since the key's creation. */
  spent: number
  refills: number
  /** Number of its writes, the creation included. Verifications see it as the key's name. */
  version: number
  /** The version from which it is deleted. */
  deletedVersion: number
}

const describeKey = ({ version, enabled, deletedAt, remaining }: KeyRow) =>
  `version ${version}, ${deletedAt !== null ? 'deleted' : enabled ? 'enabled' : 'disabled'}, ${remaining ?? 'no'} credits`

type Listener = {
  thread: Thread
  heard: (payload: string) => void
  connected: () => void
  isBroken: boolean
  lastArrivalMs: number
}

/** A fragment, which is inserted into statements. */
const FRAGMENT = /^\s*\(/

/** A statement of the simulation itself: its one parameter is the function to run. */
export const SIMULATED = 'simulated'
const WINDOWS_TIMEOUT_MS = 5_000

const connectionError = (message: string) => Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' })

/** Counts by `key hour` and `identifier hour`. */
export type UsageCells = Map<string, number[]>

/** The parameters of `countBatch`, in order. */
type UsageValues = [writer: string, number: number, now: number, identifiersMax: number, ...columns: string[]]

/** @param values The parameters of `countBatch`. */
export function usageCellsOf(values: readonly unknown[]): UsageCells {
  const cells: UsageCells = new Map()
  const add = (name: string, at: number, count: number) => {
    if (count === 0) return
    let counts = cells.get(name)
    if (counts === undefined) {
      counts = Array.from({ length: 9 }, () => 0)
      cells.set(name, counts)
    }
    counts[at] = (counts[at] ?? 0) + count
  }
  const texts = (at: number) => textsOf(values[at] as string) // columns are texts
  const numbers = (at: number) => texts(at).map(Number)
  const keys = texts(13)
  const hours = numbers(12)
  for (let outcome = 0; outcome < 7; outcome++) {
    const counts = numbers(15 + outcome)
    for (const [i, key] of keys.entries()) add(`${key} ${oneOf(hours, i)}`, outcome, oneOf(counts, i))
  }
  const totalHours = numbers(24)
  const identifiers = texts(28)
  const passed = numbers(29)
  const denied = numbers(30)
  for (const [i, total] of numbers(27).entries()) {
    const name = `${identifiers[i]} ${totalHours[total - 1]}`
    add(name, 7, passed[i] ?? 0)
    add(name, 8, denied[i] ?? 0)
  }
  return cells
}

/** One value may stand for all rows. */
const oneOf = (column: readonly number[], row: number) => (column.length === 1 ? column[0] : column[row]) ?? 0

/** The elements of an array literal. No text in the simulation contains a comma, a quote or a backslash. */
function textsOf(literal: string): string[] {
  const inner = literal.slice(1, -1).replaceAll('"', '')
  return inner === '' && !literal.includes('"') ? [] : inner.split(',').map((item) => item.trim())
}

/** The spill files of one data directory. */
export class SpillFolder implements Spills {
  readonly files = new Map<number, { kind: string; value: unknown }>()
  private lastNumber = 0

  write(kind: string, value: unknown): UnreadSpill {
    const number = ++this.lastNumber
    this.files.set(number, { kind, value })
    return this.unread(number)
  }
  async writeAsync(kind: string, value: unknown): Promise<UnreadSpill> {
    return this.write(kind, value)
  }

  list(kind: string): UnreadSpill[] {
    return [...this.files].filter(([, file]) => file.kind === kind).map(([number]) => this.unread(number))
  }

  *read(kind: string): Generator<Spill, void> {
    for (const file of this.list(kind)) {
      const spill = file.read()
      if (spill !== null) yield spill
    }
  }

  private unread(number: number): UnreadSpill {
    return {
      read: () => {
        const file = this.files.get(number)
        return file === undefined ? null : { value: file.value, done: () => this.files.delete(number) }
      },
    }
  }
}
