import { openSpills, type Spills } from '../../data-dir/spill.ts'
import type { DatabaseAddress } from '../../db/connect.ts'
import { type Link, type LinkEnd, toLink } from '../../lib/link.ts'
import { LoopLag } from '../../lib/loop-lag.ts'
import type { Handlers } from '../../lib/managed-thread.ts'
import { systemTimers, type Timers } from '../../lib/timers.ts'
import { log, logUnknownFormat } from '../../log.ts'
import { FleetDecider } from '../fleet/fleet-decider.ts'
import { OpenFleet } from '../fleet/open-fleet.ts'
import { Flusher, type FlushStore } from '../flush/flush.ts'
import { isKnownFormat, unpackSegment } from '../flush/segment.ts'
import { type HashRange, type StoredNode, WindowStore } from '../flush/store.ts'
import { CELL_BYTES, WindowTable } from '../table/window-table.ts'
import { Decider } from './decider.ts'
import {
  type Answers,
  type Calls,
  LARGEST_OWNERS,
  type OwnerNamed,
  type ShardRequests,
  type ShardSetup,
  type ShardStats,
  type WorkspaceShare,
} from './protocol.ts'
import { firstHashOf } from './shard-ranges.ts'

/** What a shard works with; the simulation and tests pass their own. */
export type ShardParts = {
  timers: Timers
  openStore(address: DatabaseAddress): Store
  openSpills(dataDir: string, of: DatabaseAddress): Pick<Spills, 'write'>
  /** Called from time to time, as batches become garbage. */
  collectGarbage(): void
}
type Store = FlushStore & Pick<WindowStore, 'list' | 'readRows' | 'readSegments'>

const OF_THE_SYSTEM: ShardParts = {
  timers: systemTimers,
  openStore: (address) => new WindowStore(address),
  openSpills,
  collectGarbage: () => Bun.gc(false),
}

/**
 * One shard. No other thread has its windows. Each call carries its time, so that decisions do not depend on a clock here.
 *
 * Counters of this server alone are in the table, which is flushed, and restored at a start. Counters that servers share are
 * in `fleet`: the engine is their memory, and nothing of them is flushed or restored.
 */
export class Shard implements Handlers<ShardRequests> {
  private running: { table: WindowTable; flusher: Flusher; fleet: OpenFleet | null } | undefined
  /** With what decides their batches. */
  private readonly routers = new Map<Link<Answers, Calls | OwnerNamed>, Decider | FleetDecider>()
  private readonly lag: LoopLag
  /** Open since `start`. */
  private store: Store | undefined
  private numbersReceived = 0
  /** By owner's number. One for each workspace that has called. */
  private readonly workspaceIds = new Map<number, string>()
  private isOverflowing = false
  private isAbandoned = false

  constructor(private readonly thread: ShardParts = OF_THE_SYSTEM) {
    this.lag = new LoopLag(thread.timers)
  }

  async start(setup: ShardSetup, working: () => void): Promise<number> {
    const { timers, openStore, openSpills } = this.thread
    const store = openStore(setup.address)
    this.store = store
    const { memoryBytes, nowMs, count } = setup
    const table = new WindowTable({ memoryBytes, nowMs, shards: count })
    const first = firstHashOf(setup.index, count)
    const hashes = { first, last: firstHashOf(setup.index + 1, count) - 1 }
    const which = { shard: setup.index, hashes, nodeId: setup.nodeId, nowMs }
    const restoring = new Restoring(table, store, which, timers, working)
    const lastGeneration = await restoring.run()
    if (this.isAbandoned) {
      await store.close() // `abandon` closed it, but reading opened it again
      throw new Error('the shard was given up while it started')
    }
    const flusher = new Flusher({
      table,
      store,
      spills: openSpills(setup.dataDir, setup.address),
      timers,
      nodeId: setup.nodeId,
      hashes,
      firstGeneration: lastGeneration + 1,
      everyMs: setup.flushEveryMs,
      deletesEnded: setup.index === 0,
    })
    const fleet = setup.fleet === null ? null : await OpenFleet.open(setup, setup.fleet, { timers, table })
    if (this.isAbandoned) {
      fleet?.abandon()
      throw new Error('the shard was given up while it started')
    }
    flusher.start()
    this.lag.start()
    this.running = { table, flusher, fleet }
    return table.live
  }

  connect(end: LinkEnd): void {
    this.serve(end, { isLocal: false })
  }

  connectLocal(end: LinkEnd): void {
    this.serve(end, { isLocal: true })
  }

  async flush(): Promise<void> {
    await this.started().flusher.flush()
  }

  rewrite(): void {
    this.started().table.markAllChanged()
  }

  servers(count: number): void {
    this.running?.fleet?.setServers(count)
  }

  stats(nowMs: number): ShardStats {
    const { table, flusher, fleet } = this.started()
    table.advance(nowMs)
    return {
      windowsLive: table.live,
      windowsDirty: table.dirty,
      loopLagMs: this.lag.worstMs,
      tableBytes: table.bytes,
      isOverBudget: table.sketch.isActive,
      chargesOverBudget: table.sketch.chargesTotal,
      largest: this.largest(table),
      flushLagMs: flusher.lagMs,
      cellsFlushed: flusher.cellsWritten,
      flushTookMs: flusher.tookMs,
      fleet: fleet?.stats ?? null,
    }
  }

  async stop(): Promise<number> {
    this.lag.stop()
    for (const [router, decider] of this.routers) {
      router.close()
      decider.close()
    }
    const { flusher, fleet } = this.running ?? {}
    const [spilled] = await Promise.all([flusher?.stop(), fleet?.stop()])
    return spilled ?? 0
  }

  /** Ends the shard as the end of its thread would: it answers and writes nothing more. */
  abandon(): void {
    this.isAbandoned = true
    this.lag.stop()
    for (const router of this.routers.keys()) router.close()
    this.running?.flusher.abandon()
    this.running?.fleet?.abandon()
    void this.store?.close().catch(() => {}) // it is of no use any more
  }

  private started(): { table: WindowTable; flusher: Flusher; fleet: OpenFleet | null } {
    if (this.running === undefined) throw new Error('the shard has not been started')
    return this.running
  }

  private largest({ owners, sketch }: WindowTable): WorkspaceShare[] {
    return owners.largest(LARGEST_OWNERS).map(({ owner, cells }) => ({
      workspaceId: this.workspaceIds.get(owner) ?? null,
      owner,
      bytes: cells * CELL_BYTES,
      chargesOverBudget: sketch.chargesOf(owner),
    }))
  }

  /** Answers the batches of one HTTP thread. @param isLocal Its counters are of this server alone. */
  private serve(end: LinkEnd, { isLocal }: { isLocal: boolean }): void {
    const { table, fleet } = this.started()
    const router = toLink<Answers, Calls | OwnerNamed>(end)
    const decider =
      fleet === null || isLocal
        ? new Decider(table)
        : new FleetDecider(fleet.shard, (answers) => router.post(answers))
    this.routers.set(router, decider)
    router.onClosed = () => {
      this.routers.delete(router)
      decider.close()
    }
    router.onMessage = (message) => {
      if (!Array.isArray(message)) {
        this.workspaceIds.set(message.owner, message.workspaceId)
        return
      }
      router.post(decider.decide(message))
      this.reportOverflow(table)
      this.collectGarbage(message.length)
    }
  }

  /**
   * Asks for a collection every million numbers, which is every 16 MB of batches. By itself the collector waits until the
   * garbage is in proportion to the heap, which holds the whole memory budget: with 64 MiB the process varied between 100 and
   * 220 MiB, now 100 ± 2. Asking takes 0.1 ms; the collection runs on another thread.
   */
  private collectGarbage(numbers: number): void {
    this.numbersReceived += numbers
    if (this.numbersReceived < 1_000_000) return
    this.numbersReceived = 0
    this.thread.collectGarbage()
  }

  /** Logs when the memory budget is reached, and when every window has its own cell again. */
  private reportOverflow(table: WindowTable): void {
    if (table.sketch.isActive === this.isOverflowing) return
    this.isOverflowing = table.sketch.isActive
    const fields = {
      tableBytes: table.bytes,
      sketchBytes: table.sketch.bytes,
      charges: table.sketch.chargesTotal,
      largestWorkspace: this.largest(table)[0]?.workspaceId ?? null,
    }
    if (this.isOverflowing)
      log(
        'warn',
        'limiter_memory_full',
        'rate limit windows exceed TOLLGATE_LIMITER_MEMORY_MIB: new identifiers of the largest workspaces may be limited too early, never too late',
        fields,
      )
    else
      log(
        'info',
        'limiter_memory_recovered',
        'rate limit windows fit TOLLGATE_LIMITER_MEMORY_MIB again',
        fields,
      )
  }
}

/**
 * Loads the open windows of a shard's range, of all nodes: one node after the other, since what is stored of one tells the
 * same window over and over.
 */
class Restoring {
  /** At the beginning. */
  private segments = 0
  private segmentsRead = 0
  private loggedMs: number

  /** @param working Called after each part. */
  constructor(
    private readonly table: WindowTable,
    private readonly store: Store,
    private readonly which: { shard: number; hashes: HashRange; nodeId: string; nowMs: number },
    private readonly timers: Timers,
    private readonly working: () => void,
  ) {
    this.loggedMs = timers.now()
  }

  /** @returns the last generation that this node began, 0 where it never did. */
  async run(): Promise<number> {
    const { hashes, nodeId, nowMs } = this.which
    const nodes = await this.store.list(hashes, nowMs)
    for (const { segments } of nodes) this.segments += segments.length
    for (const node of nodes) {
      if (node.nodeId === nodeId) continue
      await this.load(node)
      this.table.markRestoredAsForeign()
    }
    const own = nodes.find((node) => node.nodeId === nodeId)
    if (own === undefined) return 0
    await this.load(own)
    return own.segments.reduce((last, { generation }) => Math.max(last, generation), 0)
  }

  private async load(node: StoredNode): Promise<void> {
    const { hashes, nowMs } = this.which
    await this.loadRows(node)
    let { segments } = node
    // Another server may be at work: what it deletes while we read is in segments that it has written since.
    while (!(await this.loadSegments(segments))) {
      const lastId = segments.at(-1)?.id ?? 0
      const nodes = await this.store.list(hashes, nowMs)
      const now = nodes.find(({ nodeId }) => nodeId === node.nodeId)
      segments = now?.segments.filter(({ id }) => id > lastId) ?? []
    }
  }

  /** Written by releases up to 0.1. To be removed after one release: docs/decisions/0010. */
  private async loadRows({ nodeId, rows }: StoredNode): Promise<void> {
    if (rows === 0) return
    const { hashes, nowMs } = this.which
    const { first, last } = hashes
    // Hashes are spread evenly, so equal parts of the range hold about equally many.
    const step = Math.ceil((last - first + 1) / Math.max(1, Math.ceil(rows / RESTORE_ROWS)))
    for (let from = first; from <= last; from += step) {
      const part = { first: from, last: Math.min(last, from + step - 1) }
      const read = await this.store.readRows(part, nodeId, nowMs)
      for (const { cell, ends_at, used, owner } of read) {
        const digits = cell.replaceAll('-', '')
        const word = (i: number) => Number.parseInt(digits.slice(8 * i, 8 * i + 8), 16) | 0
        this.table.restore(word(0), word(1), word(2), word(3), ends_at, used, owner)
      }
      this.report()
    }
  }

  /** @returns whether all of them were still there. */
  private async loadSegments(segments: StoredNode['segments']): Promise<boolean> {
    const { table } = this
    const { first, last } = this.which.hashes
    let areAllThere = true
    for (let from = 0; from < segments.length; ) {
      const ids: number[] = []
      for (let bytes = 0; from < segments.length && bytes < RESTORE_BYTES; from++) {
        const segment = segments[from] as StoredNode['segments'][number] // in range
        ids.push(segment.id)
        bytes += segment.bytes
      }
      const read = await this.store.readSegments(ids)
      if (read.length < ids.length) areAllThere = false
      for (const { format, cells } of read) {
        if (!isKnownFormat(format)) {
          logUnknownFormat('windows of rate limits', format)
          continue
        }
        unpackSegment(
          cells,
          (h0, h1, h2, h3, endMs, used, owner) => {
            if (h0 >>> 0 < first || h0 >>> 0 > last) return // of another shard
            table.restore(h0, h1, h2, h3, endMs, used, owner)
          },
          format,
        )
      }
      this.segmentsRead += ids.length
      this.report()
    }
    return areAllThere
  }

  /** Nothing is answered until all windows are there, so a long start says how far it is. */
  private report(): void {
    this.working()
    const nowMs = this.timers.now()
    if (nowMs - this.loggedMs < REPORT_EVERY_MS) return
    this.loggedMs = nowMs
    log('info', 'windows_restoring', 'a limiter shard restores its open windows before it starts', {
      shard: this.which.shard,
      windowsRestored: this.table.live,
      segmentsRead: this.segmentsRead,
      segments: Math.max(this.segments, this.segmentsRead), // another server may write meanwhile
    })
  }
}

const RESTORE_ROWS = 20_000
const RESTORE_BYTES = 2 ** 20
const REPORT_EVERY_MS = 5_000
