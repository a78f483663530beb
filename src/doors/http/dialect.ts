import type { TSchema } from '@sinclair/typebox'
import type { ApiError } from '../../errors.ts'

/** Data for the headers that every answer has, and for its body. */
export type Envelope = Readonly<{
  requestId: string
  /** `performance.now()` when the request arrived. */
  startedAt: number
  /** Headers that the endpoint added; null = none. */
  addedHeaders: Readonly<Record<string, string>> | null
  /** True when the request has an `Origin`: a page of another origin sent it. */
  isCrossOrigin: boolean
  /** As sent, without the query. */
  path: string
  /** The `Accept` header; null = none. */
  accept: string | null
  /** True below `/v1/` and `/v2/`, which pages of any origin may read. */
  isApi: boolean
  /** Indent the JSON: the URL has `?pretty`. */
  isPretty: boolean
  /** Base of the links in errors. */
  publicUrl: string
  /** The request's trace and span, for log lines; null = none. */
  trace: { traceId: string; spanId: string } | null
}>

/** An envelope to which headers can still be added. */
export type AddableEnvelope = Envelope & { readonly headers: Record<string, string> }

/**
 * The differences between the APIs that one server speaks: how input is read and refused, and the bodies of answers. Wire,
 * routing and operations are the same for all.
 */
export type Dialect = {
  /** Beginning of all its paths, such as `/v1/`. */
  readonly prefix: `/${string}/`
  /**
   * Checks the headers of a request before its body is read, and before any other check. Null = nothing to check.
   * @throws ApiError
   */
  readonly checkHeaders:
    | ((request: RequestHeaders, endpoint: { method: 'GET' | 'POST'; access: Access }) => void)
    | null
  /** Makes the input reader of one endpoint. Called once; the reader runs for each request. */
  reader(endpoint: { method: 'GET' | 'POST'; path: string; input: TSchema; isFastPath: boolean }): InputReader
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

export type RequestHeaders = {
  readonly path: string
  /** Any header as sent; null when absent. @param name In lower case. */
  header(name: string): string | null
}

/** What an endpoint asks of its callers. */
export type Access = 'root-key' | 'public' | 'key'

export type JsonType = 'application/json' | 'application/problem+json'

export type Failure = {
  readonly status: number
  readonly contentType: JsonType
  readonly body: unknown
  /** Headers besides those of every answer; null = none. */
  readonly headers: Readonly<Record<string, string>> | null
}
