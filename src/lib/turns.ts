/** For work that a caller can make long: yields after a while, so that other clients are answered in between. */
export class Turns {
  private steps = 0
  private sinceMs = performance.now()

  /** Called after each step. @returns a promise to wait for, or null = continue at once. */
  next(): Promise<void> | null {
    if (++this.steps % STEPS_PER_LOOK !== 0 || performance.now() - this.sinceMs < TURN_MS) return null
    return new Promise((resolve) =>
      setImmediate(() => {
        this.sinceMs = performance.now()
        resolve()
      }),
    )
  }
}

/** Reading the clock at each step would cost as much as a short step. */
const STEPS_PER_LOOK = 8
const TURN_MS = 2
