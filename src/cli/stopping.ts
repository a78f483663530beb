import { readFileSync } from 'node:fs'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { log } from '../log.ts'

/** What can be stopped: a server that runs. */
type Stoppable = { stop(): Promise<void> }

/**
 * Ends the process when it is asked to, by SIGTERM, SIGINT (Ctrl-C) or SIGHUP (the terminal was closed). States:
 *
 * 1. Starting: a signal aborts {@link signal}, which the start heeds; what it has opened it closes.
 * 2. Running: a signal stops the server, which answers what is in flight and writes what was counted.
 * 3. Stopping: further signals within {@link ONE_WISH_MS} are the same wish, because a terminal signals the whole process
 *    group and `bun run`, `npm` and supervisors pass it on. A later one cuts the stop short; {@link STOP_MS} does too.
 *
 * Exit status: 0 after a clean stop, 1 when it failed or was cut short.
 */
export class Stopping {
  readonly #aborting = new AbortController()
  readonly #timers: Pick<Timers, 'now' | 'after'>
  readonly #exit: (code: number) => void
  #since: number | null = null
  #server: Stoppable | null = null

  constructor(options: { timers?: Pick<Timers, 'now' | 'after'>; exit?: (code: number) => void } = {}) {
    this.#timers = options.timers ?? systemTimers
    this.#exit = options.exit ?? ((code) => process.exit(code))
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.#aborting.signal
  }

  /** From now on signals are taken. */
  listen(): void {
    const names = (['SIGTERM', 'SIGINT', 'SIGHUP'] as const).filter(
      (name) => name !== 'SIGHUP' || !isHangupIgnored(),
    )
    for (const name of names) process.on(name, () => this.receive(name))
  }

  /** The start is over. @returns whether a signal came meanwhile: then the server is being stopped. */
  started(server: Stoppable): boolean {
    this.#server = server
    if (this.#since === null) return false
    this.#stop(server)
    return true
  }

  /** The start ended without a server because a signal came. */
  startAborted(): void {
    log('info', 'stopped', 'stopped')
    this.#exit(0)
  }

  receive(signal: string): void {
    const now = this.#timers.now()
    if (this.#since === null) {
      this.#since = now
      log('info', 'stopping', 'stopping', { signal })
      this.#timers.after(STOP_MS, () => {
        log('error', 'stop_timed_out', 'the stop took too long and was cut off', { afterMs: STOP_MS })
        this.#exit(1)
      })
      this.#aborting.abort()
      if (this.#server !== null) this.#stop(this.#server)
      return
    }
    const afterMs = Math.round(now - this.#since)
    if (afterMs < ONE_WISH_MS) return
    log('warn', 'stop_cut_short', 'a further signal cut the stop short; what was not written is lost', {
      signal,
      afterMs,
    })
    this.#exit(1)
  }

  #stop(server: Stoppable): void {
    server.stop().then(
      () => {
        log('info', 'stopped', 'stopped')
        this.#exit(0)
      },
      (cause: unknown) => {
        log('error', 'stop_failed', 'the stop failed', { cause })
        this.#exit(1)
      },
    )
  }
}

/**
 * Whether whoever started this process had it ignore SIGHUP, as `nohup` does: then it is to outlive its terminal. Linux
 * tells; elsewhere a hangup always stops.
 */
function isHangupIgnored(): boolean {
  try {
    const [, ignored] = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? []
    return ignored !== undefined && (BigInt(`0x${ignored}`) & 1n) === 1n // SIGHUP is number 1, the lowest bit
  } catch {
    return false
  }
}

/** Further signals within this time are the same wish. */
export const ONE_WISH_MS = 2000
/** Supervisors mostly wait ten seconds before they kill. */
export const STOP_MS = 9500
