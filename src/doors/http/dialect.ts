import type { TSchema } from '@sinclair/typebox'
import type { ApiError } from '../../errors.ts'
import type { Envelope } from './answer.ts'

/**
 * The differences between the APIs that one server speaks: how input is read and refused, and the bodies of answers. Wire,
 * routing and operations are the same for all.
 */
export type Dialect = {
  /** Beginning of all its paths, such as `/v1/`. */
  readonly prefix: `/${string}/`
  /** Makes the input reader of one endpoint. Called once; the reader runs for each request. */
  reader(endpoint: { method: 'GET' | 'POST'; input: TSchema; isFastPath: boolean }): InputReader
  /** The body of a success. */
  success(reply: unknown, envelope: Envelope): unknown
  /** @param error Its `cause` must not be shown. */
  failure(error: ApiError, envelope: Envelope): Failure
}

/**
 * @param raw The JSON of a body, or the parameters of a query string.
 * @throws ApiError BAD_REQUEST naming the place and the problem.
 */
export type InputReader = (raw: unknown) => unknown

export type Failure = {
  readonly status: number
  readonly body: unknown
  /** Headers besides those of every answer; null = none. */
  readonly headers: Readonly<Record<string, string>> | null
}
