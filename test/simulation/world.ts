import { drainMicrotasks } from 'bun:jsc'
import type { Link, LinkEnd } from '../../src/lib/link.ts'
import type { Timers } from '../../src/lib/timers.ts'
import { randomNumbers } from '../support/random.ts'

/**
 * Virtual time: events in the order of their times, and of their creation when times are equal. An event runs to its end,
 * with all promises that it resolves, before the next begins. So the seed decides everything that happens.
 */
export class World {
  /** Virtual milliseconds since the beginning. Not a thread's clock, as those may be wrong. */
  nowMs = 0
  readonly random: () => number
  /** Events so far, newest last; null = no trace is wanted. */
  readonly trace: string[] | null
  private readonly heap: Event[] = []
  private lastNumber = 0
  /** The first problem found. */
  failure: Error | null = null

  constructor(seed: number, options: { isTraced: boolean }) {
    this.random = randomNumbers(seed)
    this.trace = options.isTraced ? [] : null
  }

  /** Runs at `atMs` on that thread, later when the thread is paused, and not at all when it is dead. */
  at(atMs: number, thread: Place | null, run: () => void): Event {
    const event = { atMs, number: ++this.lastNumber, thread, run: run as (() => void) | null } // null = cancelled
    this.push(event)
    return event
  }

  after(delayMs: number, thread: Place | null, run: () => void): Event {
    return this.at(this.nowMs + delayMs, thread, run)
  }

  /** Runs the next event. @returns false when there is none. @throws the problem that was found. */
  step(): boolean {
    const event = this.pop()
    if (event === null) return false
    const { thread, run } = event
    if (run === null || thread?.isDead === true) return true
    if (thread !== null && thread.pausedUntilMs > event.atMs) {
      event.atMs = thread.pausedUntilMs
      this.push(event)
      return true
    }
    this.nowMs = event.atMs
    run()
    drainMicrotasks()
    if (this.failure !== null) throw this.failure
    return true
  }

  /** Ends the run at the next step. For code whose thrown errors would be lost. */
  fail(message: string, cause?: unknown): void {
    this.failure ??= new Error(message, { cause })
  }

  note(text: () => string): void {
    if (this.trace === null) return
    this.trace.push(`${this.nowMs.toFixed(2).padStart(11)}  ${text()}`)
    if (this.trace.length > 20_000) this.trace.splice(0, 10_000)
  }

  between(low: number, high: number): number {
    return low + (high - low) * this.random()
  }

  /** A whole number, both ends included. */
  integer(low: number, high: number): number {
    return low + Math.floor((high - low + 1) * this.random())
  }

  chance(probability: number): boolean {
    return this.random() < probability
  }

  pick<T>(choices: readonly [T, ...T[]]): T {
    return choices[Math.floor(choices.length * this.random())] as T // below their number
  }

  private push(event: Event): void {
    const { heap } = this
    let at = heap.length
    heap.push(event)
    while (at > 0) {
      const parent = (at - 1) >> 1
      const other = heap[parent] as Event // in range
      if (!isBefore(event, other)) break
      heap[at] = other
      at = parent
    }
    heap[at] = event
  }

  private pop(): Event | null {
    const { heap } = this
    const first = heap[0]
    const last = heap.pop()
    if (first === undefined || last === undefined) return null
    if (heap.length === 0) return first
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event)) child++ // both in range
      const other = heap[child] as Event // in range
      if (!isBefore(other, last)) break
      heap[at] = other
      at = child
    }
    heap[at] = last
    return first
  }
}

export type Event = { atMs: number; readonly number: number; thread: Place | null; run: (() => void) | null }

/** The place of an event: a thread, or the thread that has a port when the event runs. */
type Place = { readonly isDead: boolean; readonly pausedUntilMs: number }

const isBefore = (a: Event, b: Event) => a.atMs < b.atMs || (a.atMs === b.atMs && a.number < b.number)

/** An event loop, until it dies. */
export class Thread {
  isDead = false
  pausedUntilMs = 0
  readonly timers: Timers
  readonly ports = new Set<Port>()

  constructor(
    readonly world: World,
    readonly name: string,
  ) {
    const cancelOf = (event: Event) => () => {
      event.run = null
    }
    this.timers = {
      now: () => world.nowMs,
      after: (delayMs, run) => cancelOf(world.after(Math.max(1, delayMs) + world.random(), this, run)),
      every: (periodMs, run) => {
        let isOver = false
        const next = () => {
          if (isOver) return
          world.after(periodMs, this, next)
          run()
        }
        world.after(periodMs, this, next)
        return () => {
          isOver = true
        }
      },
      soon: (run) => void world.after(0.01, this, run),
    }
  }

  /** Its ports close. Messages posted before still arrive. */
  die(): void {
    if (this.isDead) return
    this.isDead = true
    for (const port of this.ports) port.close()
  }
}

/** Duration of a message, ms. Called for each message. */
export type Delay = () => number

/**
 * One end of a link between threads, as the platform has it: messages arrive in order, after a while, once there is a
 * handler. When one end closes, both hear of it, the other one after all messages posted before.
 */
export class Port implements Link {
  readonly isDirect = false
  peer: Port | null = null
  isClosed = false
  private handler: ((message: unknown) => void) | null = null
  private readonly waiting: unknown[] = []
  private lastArrivalMs = 0
  private isPeerClosing = false

  constructor(
    private readonly world: World,
    /** The thread where messages arrive; changes with a transfer. */
    public owner: Thread,
    private readonly options: { delay: Delay; onPosted?: PortObserver },
  ) {
    owner.ports.add(this)
  }

  giveTo(owner: Thread): void {
    this.owner.ports.delete(this)
    this.owner = owner
    owner.ports.add(this)
    if (owner.isDead) this.close()
  }

  get isDead(): boolean {
    return this.owner.isDead
  }

  /** On its way to another thread it receives nothing, but keeps messages that arrive. */
  get pausedUntilMs(): number {
    return this.handler === null ? 0 : this.owner.pausedUntilMs
  }

  get onMessage(): (message: unknown) => void {
    return this.handler ?? (() => {})
  }

  set onMessage(handler: (message: unknown) => void) {
    this.handler = handler
    if (this.waiting.length > 0) this.world.after(0, this, () => this.drain())
  }

  onClosed(): void {}

  post(message: unknown, transfer: readonly LinkEnd[] = []): void {
    const { peer } = this
    if (this.isClosed || peer === null) return
    this.options.onPosted?.(this, message)
    const atMs = Math.max(peer.lastArrivalMs, this.world.nowMs + this.options.delay())
    peer.lastArrivalMs = atMs
    this.world.at(atMs, peer, () => {
      if (peer.isClosed) return
      for (const port of transfer) if (port instanceof Port) port.giveTo(peer.owner)
      peer.receive(message)
    })
  }

  close(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.world.after(0.01, this.owner, () => this.tellClosed())
    const { peer, world } = this
    if (peer === null || peer.isPeerClosing) return
    peer.isPeerClosing = true
    const atMs = Math.max(peer.lastArrivalMs, world.nowMs + this.options.delay())
    world.at(atMs, peer, () => {
      if (peer.isClosed) return
      peer.isClosed = true
      peer.tellClosed()
    })
  }

  private receive(message: unknown): void {
    if (this.handler === null || this.waiting.length > 0) this.waiting.push(message)
    else this.handler(message)
  }

  private drain(): void {
    if (this.handler === null || this.waiting.length === 0 || this.isClosed) return
    const message = this.waiting.shift()
    if (this.waiting.length > 0) this.world.after(0, this, () => this.drain())
    this.handler(message)
  }

  private tellClosed(): void {
    this.onClosed()
  }
}

/** Called with each message when it is posted. */
export type PortObserver = (from: Port, message: unknown) => void

export function makeLink(
  world: World,
  owner: Thread,
  options: { delay: Delay; onPosted?: PortObserver },
): [Port, Port] {
  const [one, other] = [new Port(world, owner, options), new Port(world, owner, options)]
  one.peer = other
  other.peer = one
  return [one, other]
}
