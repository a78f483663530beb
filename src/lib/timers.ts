/** How one thread waits, as a value: the limiter's and the caches' machines are also run in simulated time. */
export type Timers = {
  /** Milliseconds since some moment, never running backwards: for durations. */
  now(): number
  /** Runs it once, `delayMs` from now. */
  after(delayMs: number, run: () => void): Cancel
  /** Runs it every `periodMs`. */
  every(periodMs: number, run: () => void): Cancel
  /** Runs it in the next turn of the event loop. */
  soon(run: () => void): void
}

/** Harmless when it has run, or been cancelled, already. */
export type Cancel = () => void

export const systemTimers: Timers = {
  now: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs)
    return () => clearTimeout(timer)
  },
  every(periodMs, run) {
    const timer = setInterval(run, periodMs)
    return () => clearInterval(timer)
  },
  soon: (run) => void setImmediate(run),
}
