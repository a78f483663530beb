import { softDeleteKey } from '../../src/api/keys/store.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { KeyedHash } from '../../src/lib/keyed-hash.ts'
import { SPILL_KIND, type SpilledWindows } from '../../src/limiter/flush/spilled-windows.ts'
import { nameOf } from '../../src/limiter/table/holds.ts'
import type { Charge } from '../../src/limiter/threads/router.ts'
import { shardOf } from '../../src/limiter/threads/shard-ranges.ts'
import type { UsageBatch } from '../../src/usage/batch.ts'
import { KeyLocked } from '../../src/verify/credits.ts'
import { V1_RULES } from '../../src/verify/rules.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { verify } from '../../src/verify/verify.ts'
import { cellsOfBatch } from './ledger.ts'
import {
  cellNameOf,
  copiesOf,
  type KeyRow,
  latestOf,
  Postgres,
  SIMULATED,
  SpillFolder,
  type WindowCopy,
} from './postgres.ts'
import { EPOCH_MS, type HttpThread, type Machine, Server } from './server.ts'
import { World } from './world.ts'

export type Outcome = {
  seed: number
  decisions: number
  faults: number
  virtualMs: number
  failure: Error | null
  trace: readonly string[]
}

/** Runs one seed to its end, or to the first problem. The program's log lines are part of the trace. */
export function simulate(seed: number, options: { isTraced: boolean }): Outcome {
  const simulation = new Simulation(seed, options)
  const { stdout, stderr } = process
  const [writeOut, writeError] = [stdout.write, stderr.write]
  const hear = (line: string | Uint8Array) => {
    simulation.world.note(
      () =>
        `log: ${String(line)
          .trimEnd()
          .replace(/"at":"[^"]*",/, '')
          .slice(0, 200)}`,
    )
    return true
  }
  let failure: Error | null = null
  try {
    stdout.write = hear
    stderr.write = hear
    simulation.run()
  } catch (cause) {
    failure = cause instanceof Error ? cause : new Error(String(cause))
  } finally {
    stdout.write = writeOut
    stderr.write = writeError
  }
  const { world, decisions, faults } = simulation
  return { seed, decisions, faults, virtualMs: world.nowMs, failure, trace: world.trace ?? [] }
}

/**
 * One or two servers on one database, their callers and all faults, from one seed. Checked while it runs:
 *
 * 1. Each answer of a shard agrees with a simple model of its windows: never over the limit, a refusal charges nothing, a
 *    count only grows until the window's end (`limiter-model.ts`). All passed calls together stay within the limit. After a
 *    clean stop, calls that charge several counters have left what they were told, and nothing where one refused.
 * 2. While the database answers, counts are stored one flush interval later. After a clean stop all are stored, in the
 *    database or in the data directory. In a flood this holds for counters at half of their limit or more.
 * 3. Usage in the database never exceeds the decisions, includes them one flush interval later, and equals them after a
 *    clean stop once the data directory has been sent.
 * 4. Credits: no more calls are answered VALID than credits were spent, no more are spent than there were, and none for a
 *    call that was refused because its key was locked.
 * 5. Every verification on every thread of a server sees the writes that were answered there before it began. It sees
 *    unanswered writes, and those of other servers, soon afterwards, while the database answers.
 * 6. Every call is answered or refused in time, and the windows stay within their memory.
 */
class Simulation {
  readonly world: World
  readonly postgres: Postgres
  decisions = 0
  faults = 0
  private readonly machines: Machine[] = []
  private readonly servers: Server[] = []
  private readonly counters: Counter[] = []
  private readonly keys: Key[] = []
  /** Every life so far, to check its batches. */
  private readonly lives = new Map<string, Server>()
  private readonly profile: Profile
  private messageDelay: { least: number; most: number; lateChance: number } = CALM
  /** When the last of the messages that take very long arrives. */
  private lateUntilMs = 0
  private hasEnded = false
  private mayStart = true

  constructor(seed: number, options: { isTraced: boolean }) {
    const world = new World(seed, options)
    this.world = world
    this.postgres = new Postgres(world, () => EPOCH_MS + Math.floor(world.nowMs))
    const isFlood = world.chance(0.03)
    this.profile = {
      isFlood,
      machines: !isFlood && world.chance(0.25) ? 2 : 1,
      httpThreads: world.integer(1, 3),
      flushEveryMs: world.pick([200, 1_000, 3_000]),
      usageCellsMax: world.pick([10, 1_000]),
      memoryBytes: isFlood ? MEMORY_LEAST : world.pick([128 * 1024, 2 ** 18]),
      callsEveryMs: world.pick([80, 200, 400]),
      lastsMs: world.chance(0.1) ? 30_000 : world.integer(4_000, 14_000),
      faultsEveryMs: world.pick([400, 1_000, 3_000]),
    }
    for (let i = 0; i < this.profile.machines; i++)
      this.machines.push({
        nodeId: `node_${i}`,
        spills: new SpillFolder(),
        clockOffMs: 0,
        latestMs: 0,
        lives: 0,
      })
    const counters = isFlood ? 3_000 : world.integer(3, 30)
    for (let i = 0; i < counters; i++) this.counters.push(this.makeCounter(i))
    for (let i = 0; i < 6; i++) this.keys.push(this.makeKey(i))
    this.postgres.onWindowsRead = (reader, rows) => {
      for (const { shardLives } of this.servers) {
        const model = shardLives.find((shard) => shard === reader)?.model
        if (model !== undefined && model !== null) for (const row of rows) model.restore(row)
      }
    }
    this.postgres.onUsage = (writer, cells) => {
      const life = this.lives.get(writer.slice(0, writer.indexOf(':')))
      const wrong = life === undefined ? `a batch of an unknown writer ${writer}` : life.usage.count(cells)
      if (wrong !== null) world.fail(wrong)
    }
    this.postgres.onChanged = ({ id, version }) => this.expectSoon(id, version)
  }

  run(): void {
    const { world, profile } = this
    world.note(() => `profile ${JSON.stringify(profile)}`)
    world.after(0, null, () => {
      for (const machine of this.machines) this.startServer(machine)
    })
    this.scheduleCalls()
    this.scheduleFault()
    this.scheduleCheck()
    while (world.nowMs < profile.lastsMs && world.step());
    this.finish()
  }

  /** Ends all faults; all servers stop, start once more, and stop. Then all counts must match. */
  private finish(): void {
    const { world, postgres } = this
    this.hasEnded = true
    this.messageDelay = CALM
    if (postgres.mode !== 'healthy') postgres.setMode('healthy')
    world.note(() => 'the end: no more calls, no more faults')
    const { servers } = this
    this.runUntil(() => servers.every((server) => isAtRest(server)))
    this.stopAll()
    this.mayStart = true
    for (const machine of this.machines) world.after(0, null, () => this.startServer(machine))
    this.runUntil(() => servers.every((server) => server.state === 'serving' && hasSentUsage(server)))
    this.stopAll()
    for (const server of this.servers)
      if (server.state !== 'stopped' && server.state !== 'dead')
        throw new Error(`${server.name} has not stopped but is ${server.state}`)
    for (const { spills, nodeId } of this.machines)
      if (spills.files.size > 0)
        throw new Error(`${spills.files.size} spill files of ${nodeId} were not sent`)
    for (const server of this.lives.values())
      if (server.state === 'stopped') this.mustBe(server.usage.missing([]), server.name)
    for (const key of this.keys) {
      const { row, answered, inDoubt } = key
      if (row.spent - answered > inDoubt)
        throw new Error(
          `${row.id}: ${row.spent} credits are spent, ${answered} were answered, ${inDoubt} in doubt`,
        )
    }
  }

  private stopAll(): void {
    const { servers, world } = this
    this.mayStart = false
    for (const server of servers)
      if (server.state === 'serving') world.after(0, null, () => this.stopServer(server))
    this.runUntil(() => servers.every(hasEnded))
  }

  /** Checks from time to time. A condition that is not met within a minute is left to later checks. */
  private runUntil(isSo: () => boolean): void {
    const { world } = this
    const untilMs = world.nowMs + 60_000
    let isTime = false
    const look = () => {
      isTime = isSo() || world.nowMs > untilMs
      if (!isTime) world.after(100, null, look)
    }
    world.after(100, null, look)
    while (!isTime) world.step()
  }

  // Servers.

  private startServer(machine: Machine): void {
    if (!this.mayStart) return
    if (this.servers.some((server) => server.machine === machine && !hasEnded(server))) return
    const { world, profile } = this
    const server = new Server(world, this.postgres, machine, {
      httpThreads: profile.httpThreads,
      shards: profile.httpThreads === 1 && world.chance(0.5) ? 0 : world.integer(1, 3),
      flushEveryMs: profile.flushEveryMs,
      memoryBytes: profile.memoryBytes,
      usageCellsMax: profile.usageCellsMax,
      isExact: !profile.isFlood,
      messageDelay: () => this.delay(),
    })
    for (const [i, old] of this.servers.entries()) if (old.machine === machine) this.servers.splice(i, 1)
    this.servers.push(server)
    this.lives.set(server.name, server)
    server.start().catch((cause: unknown) => {
      if (hasEnded(server)) return
      world.note(() => `${server.name}: does not start: ${describe(cause)}`)
      server.kill()
      world.after(1_000, null, () => this.startServer(machine))
    })
  }

  private stopServer(server: Server): void {
    const { world } = this
    server.stop().then(
      () => this.checkStopped(server),
      (cause: unknown) => world.fail(`${server.name} does not stop`, cause),
    )
  }

  /** After a clean stop nothing is lost. */
  private checkStopped(server: Server): void {
    const { world } = this
    const { machine } = server
    const batches: UsageBatch[] = []
    const spilled: WindowCopy[] = []
    for (const { kind, value } of machine.spills.files.values()) {
      if (kind.startsWith('usage')) batches.push(value as UsageBatch) // what the recorder writes
      if (kind !== SPILL_KIND) continue
      const { nodeId, segments } = value as SpilledWindows // what the flusher writes
      for (const segment of segments) spilled.push(...copiesOf(nodeId, segment))
    }
    const waiting = batches
      .filter(({ writer }) => writer.startsWith(`${server.name}:`))
      .filter(({ writer, number }) => !this.postgres.isCounted(writer, number))
      .map(cellsOfBatch)
    const missing = server.usage.missing(waiting)
    if (missing !== null) world.fail(`${server.name} has stopped cleanly: ${missing}`)
    this.checkTogether(server)
    const lost: string[] = []
    for (const { model, hasCrashed } of server.shardLives) {
      if (model === null || hasCrashed) continue
      for (const { cell, endMs, own } of model.toStore()) {
        if (this.isOver(server, endMs)) continue
        const name = cellNameOf(cell.words)
        const kept = [
          this.postgres.windowOf(name, machine.nodeId),
          latestOf(spilled.filter((copy) => copy.cell === name)),
        ]
        if (!kept.some((copy) => isKept(copy, endMs, own)))
          lost.push(`${own} used until ${endMs} of ${name}, kept are ${JSON.stringify(kept)}`)
      }
    }
    this.mayLose(lost, `${server.name} has stopped cleanly`)
  }

  /** A flood may have a few counters without a place among the stored ones. */
  private mayLose(lost: readonly string[], where: string): void {
    if (lost.length > (this.profile.isFlood ? LOST_OF_A_FLOOD : 0)) this.world.fail(`${where}: ${lost[0]}`)
  }

  // Callers.

  private scheduleCalls(): void {
    const { world, profile } = this
    world.after(world.between(0, 2 * profile.callsEveryMs), null, () => {
      if (this.hasEnded) return
      const http = this.randomHttp()
      if (http !== null) {
        // Some calls at the very end of a window, by the server's clock.
        const untilEdgeMs = 500 - (http.server.clock() % 500)
        const delayMs = world.chance(0.15) ? untilEdgeMs : world.between(0, 1)
        world.after(delayMs, http.thread, () => this.callSome(http))
      }
      this.scheduleCalls()
    })
  }

  private randomHttp(): HttpThread | null {
    const serving = this.servers.filter(({ state }) => state === 'serving')
    const server = serving[this.world.integer(0, Math.max(0, serving.length - 1))]
    if (server === undefined) return null
    const http = server.http[this.world.integer(0, server.http.length - 1)]
    return http ?? null
  }

  private callSome(http: HttpThread): void {
    const { world } = this
    if (http.server.state !== 'serving') return
    const kind = world.random()
    if (kind < 0.5) {
      const bursts = world.chance(0.2) ? world.integer(1, 6) : 1
      for (let i = 0; i < bursts; i++) this.ask(http, 'limits', () => this.limitMany(http))
    } else if (kind < 0.7) {
      const count = world.integer(1, 6)
      for (let i = 0; i < count; i++) this.ask(http, 'limits together', () => this.limitTogether(http))
    } else if (kind < 0.75) this.limitAsync(http)
    else if (kind < 0.95) {
      const count = world.integer(1, 12)
      for (let i = 0; i < count; i++) this.ask(http, 'verification', () => this.verifyOne(http))
    } else this.ask(http, 'write', () => this.writeKey(http))
  }

  /** Every call is answered, or fails, in time. */
  private ask(http: HttpThread, what: string, call: () => Promise<void>): void {
    const waiting = { what, sinceMs: this.world.nowMs }
    http.waiting.add(waiting)
    call()
      .catch((cause: unknown) => this.world.fail(`a call failed in the simulation itself`, cause))
      .finally(() => http.waiting.delete(waiting))
  }

  private async limitMany(http: HttpThread): Promise<void> {
    const { world } = this
    const count = world.chance(0.1) ? world.integer(50, 200) : world.integer(1, 40)
    const counters: Counter[] = []
    const charges: Charge[] = []
    const focus = world.chance(0.3) ? this.counters[world.integer(0, this.counters.length - 1)] : undefined
    for (let i = 0; i < count; i++) {
      const counter = focus ?? this.randomCounter()
      counters.push(counter)
      charges.push(this.chargeOf(counter))
    }
    const deaths = http.server.shardDeaths
    const atMs = http.clock()
    let decisions: Awaited<ReturnType<typeof http.limiter.submitAll>>
    try {
      if (count === 1) {
        const [charge] = charges
        decisions = charge === undefined ? [] : [await http.limiter.submit(charge).decided()]
      } else decisions = await http.limiter.submitAll(charges)
    } catch (cause) {
      world.note(() => `${http.thread.name}: ${count} limits fail: ${describe(cause)}`)
      return
    }
    this.decisions += count
    for (const [i, { passed, used, resetAtMs }] of decisions.entries()) {
      const counter = counters[i] as Counter // one for each
      const { limit, cost, durationMs } = charges[i] as Charge // one for each
      const { identifier } = counter
      record(http, identifier, passed)
      if (passed && cost > 0 && (used > limit || used < cost))
        world.fail(`${identifier}: passed with ${used} of ${limit} used`)
      if (resetAtMs <= atMs && resetAtMs % durationMs === 0)
        world.fail(`${identifier}: asked at ${atMs} and told of a window that ended at ${resetAtMs}`)
      if (passed && !this.admit(http.server, counter, cost, resetAtMs, deaths))
        world.fail(`${identifier}: more than its limit of ${limit} let through until ${resetAtMs}`)
    }
  }

  /** All of them, or none; often with the same counter twice, or with one that always refuses. */
  private async limitTogether(http: HttpThread): Promise<void> {
    const { world } = this
    const counters = Array.from({ length: world.integer(1, 6) }, () => this.randomCounter())
    const charges = counters.map((counter) => this.chargeOf(counter))
    if (world.chance(0.2)) {
      const hopeless = this.randomCounter()
      counters.push(hopeless)
      charges.push({ ...this.chargeOf(hopeless), limit: 0, cost: 1 })
    }
    const deaths = http.server.shardDeaths
    let decisions: Awaited<ReturnType<typeof http.limiter.chargeTogether>>
    try {
      decisions = await http.limiter.chargeTogether(charges)
    } catch (cause) {
      world.note(() => `${http.thread.name}: ${charges.length} limits together fail: ${describe(cause)}`)
      // A dead shard may have told of it before, and a late one may do so yet: undone, unless it was not heard of.
      for (const [i, { inDoubt }] of counters.entries())
        inDoubt.set(http.server, (inDoubt.get(http.server) ?? 0) + (charges[i] as Charge).cost) // one for each
      return
    }
    this.decisions += charges.length
    const havePassed = decisions.every(({ passed }) => passed)
    for (const [i, { passed, used, resetAtMs }] of decisions.entries()) {
      const counter = counters[i] as Counter // one for each
      const { limit, cost } = charges[i] as Charge // one for each
      const { identifier } = counter
      record(http, identifier, havePassed)
      if (used < 0 || (passed && havePassed && cost > 0 && (used > limit || used < cost)))
        world.fail(`${identifier}: ${used} of ${limit} used, together with others`)
      if (!havePassed || charges.length === 1) continue
      const told = counter.together.get(http.server)
      if (told?.endMs === resetAtMs) told.cost += cost
      else if (told === undefined || told.endMs < resetAtMs)
        counter.together.set(http.server, { endMs: resetAtMs, cost })
    }
    if (!havePassed) return
    for (const [i, { resetAtMs }] of decisions.entries()) {
      const counter = counters[i] as Counter // one for each decision
      const { cost } = charges[i] as Charge // one for each decision
      if (!this.admit(http.server, counter, cost, resetAtMs, deaths))
        world.fail(`${counter.identifier}: more than its limit let through together until ${resetAtMs}`)
    }
  }

  /** At rest, counters have what calls that charged several of them were told, and nothing of those that were refused. */
  private checkTogether(server: Server): void {
    // A stop does not wait for ever: an undo that takes longer is lost.
    const isLate = Math.max(this.lateUntilMs, server.pausedUntilMs) > server.stoppingSinceMs
    if (this.profile.isFlood || isLate) return
    for (const counter of this.counters) {
      hash.update(counter.name)
      const index = shardOf(hash.h0, Math.max(1, server.options.shards))
      const lives = server.shardLives.filter(({ model }) => model?.setup.index === index)
      const cell = lives[0]?.model?.cells.get(nameOf(hash.h0, hash.h1))
      if (lives.length > 1 || lives[0]?.hasCrashed !== false || cell === undefined) continue
      const told = counter.together.get(server)
      const cost = told?.endMs === cell.endMs ? told.cost : 0
      if (cell.together < cost || cell.together > cost + (counter.inDoubt.get(server) ?? 0))
        this.world.fail(
          `${counter.identifier}: ${cost} passed together until ${cell.endMs}, and ${cell.together} are counted`,
        )
    }
  }

  /** Calls that were let pass, by counter and window, in one life of a server without a shard's death. */
  private admit(server: Server, counter: Counter, cost: number, resetAtMs: number, deaths: number): boolean {
    if (deaths !== server.shardDeaths) return true
    let admitted = counter.admitted.get(server.machine)
    if (
      admitted === undefined ||
      admitted.server !== server ||
      admitted.deaths !== deaths ||
      admitted.endMs < resetAtMs
    ) {
      admitted = { server, deaths, endMs: resetAtMs, cost: 0 }
      counter.admitted.set(server.machine, admitted)
    }
    if (admitted.endMs > resetAtMs) return true
    admitted.cost += cost
    return admitted.cost <= counter.limit
  }

  private limitAsync(http: HttpThread): void {
    const count = this.world.integer(1, 10)
    for (let i = 0; i < count; i++) {
      const counter = this.randomCounter()
      try {
        const { passed } = http.limiter.chargeLater(this.chargeOf(counter))
        record(http, counter.identifier, passed)
        this.decisions++
      } catch (cause) {
        this.world.note(() => `${http.thread.name}: a limit fails at once: ${describe(cause)}`)
      }
    }
  }

  private async verifyOne(http: HttpThread, key = this.randomKey()): Promise<void> {
    const { world } = this
    const { row } = key
    const cost = world.pick([1, 1, 1, 2, 5, 0])
    const seenFrom = key.seenFrom.get(http.server) ?? 0
    const heardOf = key.heardOf.get(http.server) ?? 0
    const sinceMs = world.nowMs
    key.inDoubt += cost
    try {
      const verdict = await verify(http.verifier, {
        rules: V1_RULES,
        key: row.text,
        apiId: 'api_1',
        permissions: null,
        cost,
        limits: [],
        tags: world.chance(0.1) ? ['red'] : null,
        caller: { requestId: 'req_simulated', clientAddress: () => null },
      })
      this.decisions++
      key.inDoubt -= cost
      const { outcome } = verdict
      if (outcome === 'VALID' && row.remaining !== null) key.answered += cost
      if (key.answered > row.spent)
        world.fail(`${row.id}: ${key.answered} credits were answered, ${row.spent} are spent`)
      if (
        row.remaining !== null &&
        (row.remaining < 0 || row.spent + row.remaining !== key.given + row.refills * REFILL)
      )
        world.fail(`${row.id}: ${row.spent} credits spent, ${row.remaining} left, ${key.given} given`)
      // Changes of others are read again while the database answers; otherwise the cached record is used.
      const isQuick =
        this.postgres.quickSinceMs < sinceMs - 1_000 && http.server.pausedUntilMs < sinceMs - 1_000
      this.checkSeen(http, key, verdict, isQuick ? Math.max(seenFrom, heardOf) : seenFrom)
    } catch (cause) {
      if (cause instanceof KeyLocked) key.inDoubt -= cost
      world.note(() => `${http.thread.name}: a verification of ${row.id} fails: ${describe(cause)}`)
    }
  }

  /** @param seenFrom The oldest version that it may see. */
  private checkSeen(
    http: HttpThread,
    { row }: Key,
    { outcome, record }: Awaited<ReturnType<typeof verify>>,
    seenFrom: number,
  ): void {
    const { world } = this
    const wrong = (what: string) =>
      world.fail(
        `${http.thread.name}: a verification of ${row.id} that had to see version ${seenFrom} saw ${what}`,
      )
    if (record === null) {
      if (seenFrom > 0 && row.deletedAt === null) wrong('none')
      return
    }
    const version = Number(record.name)
    if (version < seenFrom) wrong(`version ${version}, and is ${outcome}`)
    if (record.enabled !== (outcome !== 'DISABLED')) wrong(`a key that is disabled, and is ${outcome}`)
  }

  /** Creates, changes or revokes a key in the program's way of writing. */
  private async writeKey(http: HttpThread): Promise<void> {
    const { world } = this
    const key = this.randomKey()
    const { row } = key
    const isMade = row.version > 0
    if (isMade && !key.isKnown) return // its id has not been returned to anyone yet
    const isDeleting = isMade && world.chance(0.25)
    let version = 0
    try {
      await http.database.write(async (tx, invalidate) => {
        version = 0
        if (isDeleting) {
          await softDeleteKey(tx, 'ws_1' as WorkspaceId, row.id, http.clock()) // the only workspace
          invalidate(row.id)
          return
        }
        const change = () => {
          if (row.deletedAt !== null) return
          if (row.version === 0) this.postgres.keyByHash.set(hashKey(row.text), row)
          else row.enabled = !row.enabled
          this.postgres.changed(row)
          version = row.version
        }
        await tx.unsafe(SIMULATED, [change as unknown as string]) // the simulation's own
        invalidate(row.id, hashKey(row.text))
      })
      if (isDeleting) version = row.deletedVersion
      world.note(() => `${http.thread.name}: the write of ${row.id} was answered, version ${version}`)
      mustSee(key, key.seenFrom, http.server, version)
      for (const other of http.server.http)
        world.after(world.between(0, 0.5), other.thread, () => {
          if (http.server.state === 'serving')
            this.ask(other, 'verification', () => this.verifyOne(other, key))
        })
    } catch (cause) {
      world.note(() => `${http.thread.name}: a write of ${row.id} fails: ${describe(cause)}`)
    }
  }

  /** After the commit, every server that hears from the database has heard of it within a few seconds. */
  private expectSoon(keyId: string, version: number): void {
    const key = this.keys.find(({ row }) => row.id === keyId)
    if (key === undefined) return
    for (const server of this.servers) {
      const look = () => {
        if (hasEnded(server)) return
        const isPaused = server.pausedUntilMs > this.world.nowMs - SEEN_WITHIN_MS
        if (server.state === 'serving' && this.postgres.isListening(server.main) && !isPaused)
          mustSee(key, key.heardOf, server, version)
        else this.world.after(SEEN_WITHIN_MS, null, look)
      }
      this.world.after(SEEN_WITHIN_MS, null, look)
    }
  }

  private randomKey(): Key {
    return this.keys[this.world.integer(0, this.keys.length - 1)] as Key // in range
  }

  private chargeOf({ name, workspaceId, limit, durationMs }: Counter): Charge {
    const { world } = this
    const dice = world.random()
    const cost = dice < 0.75 ? 1 : dice < 0.85 ? 0 : world.integer(2, Math.max(2, limit))
    return { counter: name, workspaceId, limit, durationMs, cost }
  }

  /** Some are used much more than others. */
  private randomCounter(): Counter {
    const { counters, world } = this
    const dice = world.random()
    return counters[Math.floor(counters.length * (this.profile.isFlood ? dice : dice * dice))] as Counter // below 1
  }

  private makeCounter(index: number): Counter {
    const { world } = this
    const durationMs = world.pick([500, 1_000, 2_000, 10_000, 60_000, 3_600_000])
    const limit = world.pick([1, 2, 5, 10, 50, 300, Number.MAX_SAFE_INTEGER])
    const identifier = `user_${index}`
    return {
      name: `ns_1\n${limit}\n${durationMs}\n${identifier}`,
      identifier,
      // A few workspaces have few counters, one has most: it gives way when memory is full.
      workspaceId: `ws_${Math.min(index % 16, 4)}`,
      limit,
      durationMs,
      admitted: new Map(),
      together: new Map(),
      inDoubt: new Map(),
    }
  }

  private makeKey(index: number): Key {
    const { world, postgres } = this
    const isMade = world.chance(0.8)
    const remaining = world.chance(0.5) ? world.integer(0, 60) : null
    const row: KeyRow = {
      id: `key_${index}`,
      text: `secret ${index}`,
      remaining,
      enabled: true,
      deletedAt: null,
      createdAt: EPOCH_MS - 1_000,
      refillAmount: remaining !== null && world.chance(0.5) ? REFILL : null,
      lastRefillAt: null,
      lockedUntilMs: 0,
      limits: [],
      spent: 0,
      refills: 0,
      version: isMade ? 1 : 0,
      deletedVersion: 0,
    }
    if (world.chance(0.3))
      row.limits.push({
        id: 'rl_all',
        name: 'all',
        limit: 20,
        durationMs: 5_000,
        autoApply: true,
        owner: 'key',
      })
    postgres.keys.set(row.id, row)
    if (isMade) postgres.keyByHash.set(hashKey(row.text), row)
    return {
      row,
      given: remaining ?? 0,
      answered: 0,
      inDoubt: 0,
      isKnown: isMade,
      seenFrom: new Map(),
      heardOf: new Map(),
    }
  }

  // Faults.

  private scheduleFault(): void {
    const { world, profile } = this
    world.after(world.between(0, 2 * profile.faultsEveryMs), null, () => {
      if (this.hasEnded) return
      this.faults++
      this.fault()
      this.scheduleFault()
    })
  }

  private fault(): void {
    const { world, postgres } = this
    const server = this.servers[world.integer(0, this.servers.length - 1)]
    const dice = world.random()
    if (dice < 0.3)
      postgres.setMode(world.pick(['healthy', 'healthy', 'healthy', 'slow', 'flaky', 'frozen', 'away']))
    else if (dice < 0.4) {
      this.messageDelay = world.pick([
        CALM,
        { least: 0.01, most: 30, lateChance: 0 },
        { least: 0, most: 5, lateChance: 0.05 },
      ])
      world.note(() => `messages take ${JSON.stringify(this.messageDelay)}`)
    } else if (dice < 0.45) postgres.breakListeners()
    else if (dice < 0.5) this.lockKeys()
    else if (server !== undefined) this.faultOf(server, (dice - 0.5) / 0.5)
  }

  /** Like a transaction that changes keys, perhaps many, and does not end. */
  private lockKeys(): void {
    const { world } = this
    const durationMs = world.chance(0.5) ? world.between(1, 100) : world.between(100, 4_000)
    const share = world.pick([0.1, 1])
    world.note(() => `postgres: keys are locked for ${durationMs.toFixed()} ms`)
    for (const row of this.postgres.keys.values())
      if (world.chance(share)) row.lockedUntilMs = world.nowMs + durationMs
  }

  private faultOf(server: Server, dice: number): void {
    const { world } = this
    const { machine } = server
    if (dice < 0.15 && !hasEnded(server)) {
      server.kill()
      world.after(world.between(10, 3_000), null, () => this.restart(machine))
    } else if (dice < 0.35 && server.state === 'serving') {
      this.stopServer(server)
      world.after(world.between(4_000, 12_000), null, () => this.restart(machine))
    } else if (dice < 0.55) {
      const shard = server.shardLives[world.integer(0, Math.max(0, server.shardLives.length - 1))]
      if (server.state === 'serving') shard?.crash()
    } else if (dice < 0.8) {
      const threads = [
        server.main,
        ...server.http.map(({ thread }) => thread),
        ...server.shardLives.map(({ thread }) => thread),
      ]
      const thread = threads[world.integer(0, threads.length - 1)] ?? server.main
      const durationMs = world.chance(0.2) ? world.between(1_000, 4_000) : world.between(10, 500)
      world.note(() => `${thread.name}: stands still for ${durationMs.toFixed()} ms`)
      thread.pausedUntilMs = Math.max(thread.pausedUntilMs, world.nowMs + durationMs)
      server.pausedUntilMs = Math.max(server.pausedUntilMs, thread.pausedUntilMs)
    } else {
      const most = world.pick([100, 5_000, 3_600_000])
      machine.clockOffMs = Math.floor(world.between(-most, most))
      world.note(() => `${machine.nodeId}: its clock is ${machine.clockOffMs} ms off now`)
    }
  }

  /** A stop may take longer than its supervisor waits. */
  private restart(machine: Machine): void {
    if (this.hasEnded) return
    const server = this.servers.find((candidate) => candidate.machine === machine)
    if (server !== undefined && !hasEnded(server)) this.world.after(1_000, null, () => this.restart(machine))
    else this.startServer(machine)
  }

  private delay(): number {
    const { world } = this
    const { least, most, lateChance } = this.messageDelay
    if (lateChance === 0 || !world.chance(lateChance)) return world.between(least, most)
    const ms = world.between(500, 4_000)
    this.lateUntilMs = Math.max(this.lateUntilMs, world.nowMs + ms)
    return ms
  }

  // Checks from outside, now and then.

  private scheduleCheck(): void {
    const { world, profile } = this
    world.after(CHECK_EVERY_MS, null, () => {
      for (const server of this.servers) {
        if (server.state !== 'serving') continue
        this.checkLater(server, profile.flushEveryMs + FLUSH_SLACK_MS)
        this.checkWaiting(server)
        this.checkMemory(server)
      }
      if (!this.hasEnded) this.scheduleCheck()
    })
  }

  /** While the database answers, what is counted now is stored a flush interval later. */
  private checkLater(server: Server, withinMs: number): void {
    const { world, postgres } = this
    const sinceMs = world.nowMs
    const recorded = server.usage.recordedTotal
    const deaths = server.shardDeaths
    const windows = server.shardLives
      .filter(({ model, isDead }) => model !== null && !isDead)
      .flatMap(({ model }) => model?.toStore() ?? [])
      .map((window) => ({ ...window, cellEndMs: window.cell.endMs, undone: window.cell.undone }))
    world.after(withinMs, null, () => {
      const wasWell =
        server.state === 'serving' &&
        postgres.healthySinceMs < sinceMs - RECOVERY_MS &&
        server.pausedUntilMs < sinceMs - RECOVERY_MS &&
        server.shardDeaths === deaths
      if (!wasWell) return
      if (server.usage.countedTotal < recorded)
        world.fail(
          `${server.name}: ${recorded} decisions ${withinMs} ms ago, ${server.usage.countedTotal} counted in the database`,
        )
      const lost: string[] = []
      for (const { cell, cellEndMs, endMs, own, undone } of windows) {
        if (cell.endMs !== cellEndMs || this.isOver(server, endMs)) continue
        const name = cellNameOf(cell.words)
        const copy = postgres.windowOf(name, server.machine.nodeId)
        if (own > cell.undone - undone && !isKept(copy, endMs, own - (cell.undone - undone)))
          lost.push(
            `${own} used of ${name} until ${endMs}, ${withinMs} ms ago; the database has ${JSON.stringify(copy)}`,
          )
      }
      this.mayLose(lost, server.name)
    })
  }

  /**
   * By the clock of its machine, in this life or an earlier one; or long ago by the database's clock, as other servers
   * delete old rows.
   */
  private isOver(server: Server, endMs: number): boolean {
    return endMs <= server.latestMs || endMs < this.postgres.clock() - DELETED_AFTER_MS
  }

  private checkWaiting(server: Server): void {
    for (const { waiting, thread } of server.http)
      for (const { what, sinceMs } of waiting)
        if (this.world.nowMs - sinceMs > ANSWER_WITHIN_MS && server.pausedUntilMs < sinceMs)
          this.world.fail(`${thread.name}: ${what} asked at ${sinceMs.toFixed()} has had no answer`)
  }

  private checkMemory(server: Server): void {
    const stats = server.shards?.stats(server.clock()) ?? Promise.resolve([])
    stats.then(
      (shards) => {
        for (const shard of shards)
          if (
            shard !== null &&
            shard.tableBytes >
              Math.max(this.profile.memoryBytes / Math.max(1, server.options.shards), MEMORY_LEAST)
          )
            this.world.fail(`${server.name}: windows take ${shard.tableBytes} bytes`)
      },
      () => {}, // it was stopped meanwhile
    )
  }

  private mustBe(wrong: string | null, where: string): void {
    if (wrong !== null) throw new Error(`${where}: ${wrong}`)
  }
}

type Profile = {
  isFlood: boolean
  machines: number
  httpThreads: number
  flushEveryMs: number
  memoryBytes: number
  usageCellsMax: number
  callsEveryMs: number
  lastsMs: number
  faultsEveryMs: number
}

type Counter = {
  readonly name: string
  readonly identifier: string
  readonly workspaceId: string
  readonly limit: number
  readonly durationMs: number
  readonly admitted: Map<Machine, { server: Server; deaths: number; endMs: number; cost: number }>
  /** What calls that charge several counters together were told to have passed, in the latest window. */
  readonly together: Map<Server, { endMs: number; cost: number }>
  /** Costs of such calls that failed. */
  readonly inDoubt: Map<Server, number>
}

type Key = {
  readonly row: KeyRow
  /** Credits at the start. */
  readonly given: number
  /** Credits spent according to the answers. */
  answered: number
  /** Credits of calls that failed or have no answer yet. */
  inDoubt: number
  /** Its creation was answered, or is long ago. */
  isKnown: boolean
  /** The oldest version that verifications of a server may see: that write was answered there. */
  readonly seenFrom: Map<Server, number>
  /** The same while the database answers at once: that write must have been heard of there. */
  readonly heardOf: Map<Server, number>
}

/** Records usage of a thread that neither starts nor stops. */
const record = ({ usage, clock }: HttpThread, identifier: string, passed: boolean): void =>
  usage.recordRatelimit({ workspaceId: 'ws_1', namespaceId: 'ns_1', identifier, passed, atMs: clock() })

/** True when the spilled batches of earlier lives are sent, which happens while the server serves. */
const hasSentUsage = ({ http }: Server) => http.every(({ recorder }) => recorder.stats().batchesSpilled === 0)

const isAtRest = ({ state, http }: Server) =>
  state === 'stopped' ||
  state === 'dead' ||
  (state === 'serving' && http.every(({ waiting }) => waiting.size === 0))

/**
 * A copy of a later window also contains the count: the clock was set back, and data that a killed server had sent arrived
 * late. The counter continues in that window.
 */
const isKept = (copy: { endMs: number; used: number } | undefined, endMs: number, used: number) =>
  copy !== undefined && (copy.endMs > endMs || (copy.endMs === endMs && copy.used >= used))

function mustSee(key: Key, from: Map<Server, number>, server: Server, version: number): void {
  key.isKnown ||= version > 0
  from.set(server, Math.max(version, from.get(server) ?? 0))
}

/** As the servers name counters. */
const hash = new KeyedHash('secret')

const hasEnded = ({ state }: Server) => state === 'dead' || state === 'stopped'

const describe = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

const CALM = { least: 0.01, most: 0.3, lateChance: 0 }
const REFILL = 25
const CHECK_EVERY_MS = 1_500
/** Flushes, statements and retries on top of the interval. */
const FLUSH_SLACK_MS = 2_500
/** A hanging write is given up after five seconds, a batch of usage after ten. */
const RECOVERY_MS = 11_000
const SEEN_WITHIN_MS = 5_000
const DELETED_AFTER_MS = 60_000
const ANSWER_WITHIN_MS = 20_000
/** Of about two thousand. */
const LOST_OF_A_FLOOD = 3
const MEMORY_LEAST = 16 * 1024
