import { AsyncLocalStorage } from 'node:async_hooks'

/** A request in whose time something is asked of the database. */
export type AskingRequest = {
  /** On the clock of `performance.now()`, ms: when the time limit of what it asks began. */
  readonly waitsSince: number
  /** What is still asked then is nobody's: a loop that serves others, begun by this one. */
  readonly isAnswered: boolean
}

const requests = new AsyncLocalStorage<AskingRequest>()

/**
 * What `work` asks of the database, however many statements, shares one time limit that began with the request. Without
 * it each statement would have its own, and a slow database would let a client wait for the sum of them.
 * @param args What `work` is called with: every request comes this way, and a function made for each would be garbage.
 */
export const duringRequest = <A extends unknown[], T>(
  request: AskingRequest,
  work: (...args: A) => T,
  ...args: A
): T => requests.run(request, work, ...args)

/** When the time limit of what is asked now began: with its request, if it has one. */
export function startOfWait(): number {
  const request = requests.getStore()
  return request === undefined || request.isAnswered ? performance.now() : request.waitsSince
}

/** What `work` asks of the database is for others than the request in which it happens to run, and has a time limit of its own. */
export const apartFromRequest = <T>(work: () => T): T => requests.exit(work)
