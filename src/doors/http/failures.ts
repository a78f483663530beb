import { Episode } from '../../episodes.ts'
import { unavailablePart } from '../../errors.ts'
import { systemTimers, type Timers } from '../../lib/timers.ts'
import { type LogFields, log } from '../../log.ts'

type Part = NonNullable<ReturnType<typeof unavailablePart>>
/** An unavailable part, or something that the database has run out of. Each needs another remedy. */
type Reason = Part | 'disk' | 'memory' | 'connections'

/**
 * Logs requests that failed because of the server. Each failure with a cause of its own gets a line with its request id.
 * While the database or a shard is unavailable, calls fail for one reason and are only counted:
 *
 * 1. While the database is known to be away or read-only, failures count to that outage, whose line is already logged. A
 *    full disk or memory of the database is not part of it.
 * 2. Otherwise failures wait a moment, as the first calls fail before the outage is known. If none is known then:
 *    `requests_failing`.
 * 3. After ten seconds without a failure: `requests_recovered`.
 */
export class Failures {
  readonly #timers: Pick<Timers, 'after'>
  readonly #now: () => number
  /** The outages `database` and `database writes`. */
  readonly #known: readonly Episode[]
  readonly #failing: Record<Reason, Episode>

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
      disk: new Episode('database disk', memory),
      memory: new Episode('database memory', memory),
      connections: new Episode('database connections', memory),
    }
  }

  report(cause: unknown, fields: LogFields): void {
    const part = unavailablePart(cause)
    if (part === null) {
      log('error', 'request_failed', 'a request failed because of a fault in the server', {
        ...fields,
        cause,
      })
      return
    }
    const now = this.#now()
    const code = codeOf(cause)
    const reason = reasonFor(part, code)
    if (isAbsence(reason) && this.#known.some((each) => each.count(1, now))) return
    const failing = this.#failing[reason]
    if (!failing.isOn && failing.begin(now))
      this.#timers.after(KNOWN_MS, () =>
        this.#look(reason, { part, ...fields, because: reasonOf(cause), ...(code !== null && { code }) }),
      )
    failing.count(1, now)
  }

  #look(reason: Reason, first: LogFields): void {
    const failing = this.#failing[reason]
    const known = isAbsence(reason) ? this.#known.find(({ isOn }) => isOn) : undefined
    if (known !== undefined) {
      known.count(failing.end(this.#now())?.counted ?? 0, this.#now())
      return
    }
    log('error', 'requests_failing', 'requests fail because a part of the server is unavailable', {
      ...first,
      failed: failing.counted,
    })
    this.#lookLater(reason)
  }

  #lookLater(reason: Reason): void {
    const failing = this.#failing[reason]
    this.#timers.after(QUIET_MS, () => {
      const now = this.#now()
      const ended = now - failing.lastAt < QUIET_MS ? null : failing.end(now)
      if (ended === null) return this.#lookLater(reason)
      log(
        'info',
        'requests_recovered',
        'requests succeed again: none failed for this reason for ten seconds',
        {
          part: reason === 'limiter' ? reason : 'database',
          failed: ended.counted,
          lastedMs: ended.lastedMs,
        },
      )
    })
  }
}

/** Failures of this thread. */
export const failures = new Failures()

function reasonFor(part: Part, code: string | null): Reason {
  return (part === 'database' && code !== null && LACKS.get(code)) || part
}

/** True when the reason is also covered by the outage `database` or `database writes`. */
const isAbsence = (reason: Reason): boolean => reason === 'database' || reason === 'connections'

/** By Postgres error code. */
const LACKS: ReadonlyMap<string, Reason> = new Map([
  ['53100', 'disk'],
  ['53200', 'memory'],
  ['53300', 'connections'],
])
const KNOWN_MS = 1000
const QUIET_MS = 10_000

/** On a line without stacks, as the place of the throw adds nothing. */
function reasonOf(cause: unknown): string {
  const texts: string[] = []
  for (let each = cause; each instanceof Error && texts.length < 8; each = each.cause)
    texts.push(each.message)
  return texts.join(': ')
}

/** The first code of Postgres or the network in a chain of causes. */
function codeOf(cause: unknown): string | null {
  for (let each = cause, depth = 0; each instanceof Error && depth < 8; each = each.cause, depth++)
    if ('code' in each && /^[A-Z0-9_]{5,40}$/.test(String(each.code))) return String(each.code)
  return null
}
