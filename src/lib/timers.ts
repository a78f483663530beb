/** Timers as a value. The simulation and tests pass their own. */
export type Timers = {
  /** Milliseconds since an arbitrary time, never running backwards. For durations. */
  now(): number
  /** Calls `run` once, `delayMs` from now. */
  after(delayMs: number, run: () => void): Cancel
  /** Calls `run` every `periodMs`. */
  every(periodMs: number, run: () => void): Cancel
  /** Calls `run` in the next turn of the event loop. */
  soon(run: () => void): void
}

/** Does nothing when the timer has run or was cancelled. */
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

/**
 * Waits for a promise, at most `ms`. The work behind the promise goes on after that, and its failure is ignored.
 * @param options.late Runs when the time is up; what it returns or throws is the result. Absent: throws `no answer within …`.
 * @param options.signal Ends the wait early.
 * @throws what the promise rejects with; the signal's reason.
 */
export function within<T, L = never>(
  timers: Pick<Timers, 'after'>,
  ms: number,
  promise: PromiseLike<T>,
  options: { late?: () => L; signal?: AbortSignal } = {},
): Promise<T | L> {
  const { late = () => noAnswer(ms), signal } = options
  return new Promise((resolve, reject) => {
    const end = () => {
      cancel()
      signal?.removeEventListener('abort', abort)
    }
    const abort = () => {
      end()
      reject(signal?.reason)
    }
    const cancel = timers.after(ms, () => {
      end()
      try {
        resolve(late())
      } catch (cause) {
        reject(cause)
      }
    })
    signal?.addEventListener('abort', abort)
    if (signal?.aborted === true) abort()
    promise.then(
      (value) => {
        end()
        resolve(value)
      },
      (cause) => {
        end()
        reject(cause)
      },
    )
  })
}

/** Resolves after `ms`, or when the signal is aborted. */
export function pause(timers: Pick<Timers, 'after'>, ms: number, signal: AbortSignal): Promise<void> {
  return within(timers, ms, new Promise<void>(() => {}), { late: () => {}, signal }).catch(() => {})
}

function noAnswer(ms: number): never {
  throw new Error(`no answer within ${ms} ms`)
}
