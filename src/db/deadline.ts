import { AsyncLocalStorage } from 'node:async_hooks'

/** A request that makes database statements. */
export type AskingRequest = {
  /** When the request's time limit for the database began, ms of `performance.now()`. */
  readonly waitsSince: number
  /**
   * True after the answer. Statements made then, by a shared loop that this request started, are not part of the request.
   */
  readonly isAnswered: boolean
}

const requests = new AsyncLocalStorage<AskingRequest>()

/**
 * Runs `work` so that all its statements share one time limit, which began with the request. With a limit for each
 * statement, a slow database would make the client wait for the sum.
 * @param args Arguments of `work`: passed on, because a closure for each request would be garbage.
 */
export const duringRequest = <A extends unknown[], T>(
  request: AskingRequest,
  work: (...args: A) => T,
  ...args: A
): T => requests.run(request, work, ...args)

/** When the current time limit began: with the request, or now when there is none. Ms of `performance.now()`. */
export function startOfWait(): number {
  const request = requests.getStore()
  return request === undefined || request.isAnswered ? performance.now() : request.waitsSince
}

/**
 * Runs `work` outside the current request, for loops that serve several requests. Its statements have time limits of their
 * own.
 */
export const apartFromRequest = <T>(work: () => T): T => requests.exit(work)
