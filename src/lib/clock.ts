/** The time in Unix milliseconds, as a value that tests can choose. */
export type Clock = () => number

export const systemClock: Clock = Date.now

/**
 * The same clock, never running backwards: a step back stands still until the time is reached again.
 * Windows and usage rely on it: a window once closed must not open again.
 */
export function neverBackwards(clock: Clock): Clock {
  let last = 0
  return () => {
    const now = clock()
    if (now > last) last = now
    return last
  }
}

export const HOUR_MS = 3_600_000
export const DAY_MS = 86_400_000
