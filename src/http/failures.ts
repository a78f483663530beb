import { Episode } from '../episodes.ts'
import { unavailablePart } from '../errors.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { type LogFields, log } from '../log.ts'

type Part = NonNullable<ReturnType<typeof unavailablePart>>

/**
 * Tells why requests failed by a fault of ours. A reason of its own has a line of its own, as a client was given its request
 * id. While the database or a shard is unavailable every call fails for the same reason; those are only counted:
 *
 * 1. While it is known that the database is away, or read only, they count to that.
 * 2. Else it is looked a moment later, as the first calls fail before it is known. If it still is not, `requests_failing`.
 * 3. None for ten seconds: `requests_recovered`.
 */
export class Failures {
  readonly #timers: Pick<Timers, 'after'>
  readonly #now: () => number
  /** That the database is away, or takes no writes. */
  readonly #known: readonly Episode[]
  readonly #failing: Record<Part, Episode>

  constructor(
    options: { timers?: Pick<Timers, 'after'>; now?: () => number; memory?: SharedArrayBuffer } = {},
  ) {
    const { timers = systemTimers, now = Date.now, memory } = options
    this.#timers = timers
    this.#now = now
    this.#known = [new Episode('database', memory), new Episode('database writes', memory)]
    this.#failing = {
      database: new Episode('database calls', memory),
      limiter: new Episode('limiter calls', memory),
    }
  }

  report(cause: unknown, fields: LogFields): void {
    const part = unavailablePart(cause)
    if (part === null) {
      log('error', 'request_failed', 'a request failed', { ...fields, cause })
      return
    }
    const now = this.#now()
    if (part === 'database' && this.#known.some((each) => each.count(1, now))) return
    const failing = this.#failing[part]
    if (!failing.isOn && failing.begin(now))
      this.#timers.after(KNOWN_MS, () => this.#look(part, { ...fields, because: reasonOf(cause) }))
    failing.count(1, now)
  }

  #look(part: Part, first: LogFields): void {
    const failing = this.#failing[part]
    const known = part === 'database' ? this.#known.find(({ isOn }) => isOn) : undefined
    if (known !== undefined) {
      known.count(failing.end(this.#now())?.counted ?? 0, this.#now())
      return
    }
    log('error', 'requests_failing', 'requests fail because a part of the server is unavailable', {
      part,
      ...first,
      failed: failing.counted,
    })
    this.#lookLater(part)
  }

  #lookLater(part: Part): void {
    const failing = this.#failing[part]
    this.#timers.after(QUIET_MS, () => {
      const now = this.#now()
      const ended = now - failing.lastAt < QUIET_MS ? null : failing.end(now)
      if (ended === null) return this.#lookLater(part)
      log('info', 'requests_recovered', 'no request failed for that reason for ten seconds', {
        part,
        failed: ended.counted,
        lastedMs: ended.lastedMs,
      })
    })
  }
}

/** Of this thread. */
export const failures = new Failures()

const KNOWN_MS = 1000
const QUIET_MS = 10_000

/** In a line without stacks: where it was thrown says nothing new. */
function reasonOf(cause: unknown): string {
  const texts: string[] = []
  for (let each = cause; each instanceof Error && texts.length < 8; each = each.cause)
    texts.push(each.message)
  return texts.join(': ')
}
