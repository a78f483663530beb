import { readFileSync } from 'node:fs'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { log } from '../log.ts'

/** A running server. */
type Stoppable = {
  /** @param signal Ends it early. @returns null when the server is not configured to drain. */
  drain(signal: AbortSignal): Promise<void> | null
  stop(): Promise<void>
}

/**
 * Ends the process on SIGTERM, SIGINT (Ctrl-C) or SIGHUP (the terminal was closed). States:
 *
 * 1. Starting: a signal aborts {@link signal}; the start then closes what it has opened.
 * 2. Running: a signal lets the server drain, for as long as it is configured to.
 * 3. Draining: a later signal ends it early.
 * 4. Stopping: the server answers requests in flight and writes its counts. A later signal cuts that short, and so does
 *    {@link STOP_MS}.
 *
 * Later: further signals within {@link ONE_WISH_MS} are repetitions, as a terminal signals the whole process group and
 * `bun run`, `npm` and supervisors pass signals on.
 *
 * Exit status: 0 after a clean stop, 1 when it failed or was cut short.
 */
export class Stopping {
  readonly #aborting = new AbortController()
  readonly #timers: Pick<Timers, 'now' | 'after'>
  readonly #exit: (code: number) => void
  readonly #endingDrain = new AbortController()
  /** When the last signal came that was no repetition. */
  #since: number | null = null
  #isDraining = false
  #isLimited = false
  #server: Stoppable | null = null

  constructor(options: { timers?: Pick<Timers, 'now' | 'after'>; exit?: (code: number) => void } = {}) {
    this.#timers = options.timers ?? systemTimers
    this.#exit = options.exit ?? ((code) => process.exit(code))
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.#aborting.signal
  }

  /** Begins to handle signals. */
  listen(): void {
    const names = (['SIGTERM', 'SIGINT', 'SIGHUP'] as const).filter(
      (name) => name !== 'SIGHUP' || !isHangupIgnored(),
    )
    for (const name of names) process.on(name, () => this.receive(name))
  }

  /** Call it after the start. @returns true when a signal came meanwhile: the server is being stopped. */
  started(server: Stoppable): boolean {
    this.#server = server
    if (this.#since === null) return false
    void this.#stop(server, null)
    return true
  }

  /** Call it when the start ended without a server because of a signal. */
  startAborted(): void {
    log('info', 'stopped', 'stopped')
    this.#exit(0)
  }

  receive(signal: string): void {
    const now = this.#timers.now()
    if (this.#since === null) {
      this.#since = now
      log('info', 'stopping', 'received a signal; answering in-flight requests and writing counts', {
        signal,
      })
      this.#aborting.abort()
      if (this.#server === null) this.#limit()
      else void this.#stop(this.#server, this.#server.drain(this.#endingDrain.signal))
      return
    }
    const afterMs = Math.round(now - this.#since)
    if (afterMs < ONE_WISH_MS) return
    if (this.#isDraining) {
      this.#since = now
      this.#endingDrain.abort()
      return
    }
    log(
      'warn',
      'stop_cut_short',
      'a second signal ended the stop early; counts that were not written are lost',
      {
        signal,
        afterMs,
      },
    )
    this.#exit(1)
  }

  async #stop(server: Stoppable, draining: Promise<void> | null): Promise<void> {
    try {
      if (draining !== null) {
        this.#isDraining = true
        await draining
        this.#isDraining = false
      }
      this.#limit()
      await server.stop()
      log('info', 'stopped', 'stopped')
      this.#exit(0)
    } catch (cause) {
      log('error', 'stop_failed', 'the stop failed', { cause })
      this.#exit(1)
    }
  }

  /** Ends the process when the stop takes too long. */
  #limit(): void {
    if (this.#isLimited) return
    this.#isLimited = true
    this.#timers.after(STOP_MS, () => {
      log(
        'error',
        'stop_timed_out',
        'the stop took too long and was ended; counts that were not written may be lost',
        { afterMs: STOP_MS },
      )
      this.#exit(1)
    })
  }
}

/**
 * True when the process was started with SIGHUP ignored, as by `nohup`, in order to outlive its terminal. Known on Linux
 * only; elsewhere a hangup always stops the server.
 */
function isHangupIgnored(): boolean {
  try {
    const [, ignored] = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? []
    return ignored !== undefined && (BigInt(`0x${ignored}`) & 1n) === 1n // SIGHUP is number 1, the lowest bit
  } catch {
    return false
  }
}

/** Signals within this time after the first one are repetitions, ms. */
export const ONE_WISH_MS = 2000
/** Supervisors usually kill after ten seconds. */
export const STOP_MS = 9500
