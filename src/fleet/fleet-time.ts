/**
 * The time that all servers of a fleet share: their own monotonic clock and its offset to the clock of Postgres. Pure: the
 * caller measures. Before the first measurement it is the time of the caller's own clock.
 *
 * - Half of a measurement's round trip is the error of its offset. Of the last {@link KEPT} that agree the best counts.
 * - An offset that is more than {@link STEP_MS} off is a step: taken when three in a row agree on it, so that one slow or
 *   odd answer moves nothing.
 * - It never runs backwards: after a step back it stands still until it is reached.
 */
export class FleetTime {
  /** Those that agree, newest last. */
  private measurements: Measurement[] = []
  /** Those that disagree with them and agree with each other, newest last. */
  private odd: Measurement[] = []
  private offsetMs: number
  private lastMs = Number.NEGATIVE_INFINITY

  /**
   * @param monotonic Milliseconds, from an arbitrary time.
   * @param nowMs By the server's own clock, Unix ms.
   */
  constructor(
    private readonly monotonic: () => number,
    nowMs: number,
  ) {
    this.offsetMs = nowMs - monotonic()
  }

  /** Unix ms, whole. */
  now(): number {
    const ms = Math.floor(this.monotonic() + this.offsetMs)
    if (ms > this.lastMs) this.lastMs = ms
    return this.lastMs
  }

  /** At most so far from Postgres' clock, ms; infinite before the first measurement. Drift since then is not in it. */
  get errorMs(): number {
    return Math.min(...this.measurements.map(({ errorMs }) => errorMs), Number.POSITIVE_INFINITY)
  }

  /**
   * Postgres was asked at `sentAt`, said `theirMs` (Unix ms), and its answer came at `receivedAt`, both monotonic.
   * @returns by how much the time steps, ms; 0 for an adjustment.
   */
  measured(sentAt: number, theirMs: number, receivedAt: number): number {
    const errorMs = Math.max(0, (receivedAt - sentAt) / 2)
    const measurement = { offsetMs: theirMs - (sentAt + receivedAt) / 2, errorMs }
    if (this.measurements.length === 0) return this.begin([measurement])
    if (agree(measurement, this.offsetMs)) {
      this.odd = []
      this.measurements.push(measurement)
      if (this.measurements.length > KEPT) this.measurements.shift()
      this.choose()
      return 0
    }
    const [first] = this.odd
    if (first !== undefined && !agree(measurement, first.offsetMs)) this.odd = []
    this.odd.push(measurement)
    return this.odd.length < STEPS_AFTER ? 0 : this.begin(this.odd)
  }

  /** @returns by how much the offset changes, if that is a step. */
  private begin(measurements: Measurement[]): number {
    const before = this.offsetMs
    this.measurements = measurements
    this.odd = []
    this.choose()
    const stepMs = this.offsetMs - before
    return Math.abs(stepMs) > STEP_MS ? stepMs : 0
  }

  private choose(): void {
    let best: Measurement | null = null
    for (const measurement of this.measurements)
      if (best === null || measurement.errorMs <= best.errorMs) best = measurement
    if (best !== null) this.offsetMs = best.offsetMs
  }
}

type Measurement = { offsetMs: number; errorMs: number }

/** A slow answer may be wrong by half of its round trip. */
const agree = ({ offsetMs, errorMs }: Measurement, otherMs: number) =>
  Math.abs(offsetMs - otherMs) <= STEP_MS + errorMs

const STEP_MS = 1_000
const STEPS_AFTER = 3
/** A clock that drifts by 50 ppm is off by 0.5 ms after ten seconds of measurements once a second. */
const KEPT = 10
