/** Returns the time in Unix ms. Tests pass their own. */
export type Clock = () => number

export const systemClock: Clock = Date.now

/**
 * Makes a clock that never runs backwards: when the given clock steps back, time stands still until it has caught up.
 * Windows and usage need this: a closed window must not open again.
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
