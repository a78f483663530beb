import type { TSchema } from '@sinclair/typebox'
import type { ApiError } from '../../errors.ts'
import type { Envelope } from './answer.ts'

/**
 * What differs between the APIs that one server speaks: how input is read and refused, and what bodies of answers look like.
 * The wire, the routing and the operations are the same for all.
 */
export type Dialect = {
  /** Of every path of its own: `/v1/`. */
  readonly prefix: `/${string}/`
  /** @returns what reads the input of one endpoint; made once, asked for each request. */
  reader(endpoint: { method: 'GET' | 'POST'; input: TSchema; isFastPath: boolean }): InputReader
  /** The body of a success. */
  success(reply: unknown, envelope: Envelope): unknown
  /** @param error Of its `cause` nothing is told. */
  failure(error: ApiError, envelope: Envelope): Failure
}

/**
 * @param raw The JSON of a body, or the parameters of a query string.
 * @throws ApiError BAD_REQUEST which says what is wrong and where.
 */
export type InputReader = (raw: unknown) => unknown

export type Failure = {
  readonly status: number
  readonly body: unknown
  /** Besides those of every answer; null = none. */
  readonly headers: Readonly<Record<string, string>> | null
}
