import type { TSchema } from '@sinclair/typebox'
import type { Call } from '../../api/call.ts'
import type { Services } from '../../api/parts.ts'
import type { Config } from '../../config.ts'
import type { ErrorCode } from '../../errors.ts'
import type { Dialect } from './dialect.ts'

/** The HTTP request that an endpoint answers, as far as a door may know it. */
export type HttpCall = Call & {
  /** Any header as sent; null when absent. @param name In lower case. */
  header(name: string): string | null
  /** Response headers beyond the usual ones, set by the door; also sent with an error. */
  readonly headers: Record<string, string>
}

/** What a door carries out calls with: the operations' parts, and the settings of answers. */
export type DoorServices = Services & { readonly config: Pick<Config, 'sendsRatelimitHeaders'> }

/**
 * One method of an API: path, schemas, what to do. The one source for routing, validation and the OpenAPI description.
 * `input` is the body of a POST and the query string of a GET; it is checked before the endpoint runs.
 */
export type Endpoint = {
  readonly method: 'GET' | 'POST'
  /** How it reads its input and words its answers. */
  readonly dialect: Dialect
  /** A read that answers POST just the same, from its query string: some proxies ask with the method they were asked with. */
  readonly answersPostToo: boolean
  readonly path: `/${string}`
  readonly input: TSchema
  readonly reply: TSchema
  readonly summary: string
  /** Status of a success. */
  readonly status: 200 | 202
  /**
   * `public` endpoints answer without a root key, `key` ones about the key in the request's headers; every other one
   * must authenticate.
   */
  readonly access: Access
  /**
   * On the path of every request of somebody's product: routed past Elysia. See `server/app.ts`. It gets a body as it came,
   * with fields that the schema does not know: it may neither list the fields nor pass the body on as a whole.
   */
  readonly isFastPath: boolean
  /** The day the API got it, `YYYY-MM-DD`, where known. */
  readonly introduced: string | null
  /** Every code it may answer with. The tests' client holds all answers to it. */
  readonly errors: readonly ErrorCode[]
  /** Headers of its own in the answer: name → what it says. */
  readonly answerHeaders: Readonly<Record<string, string>>
  readonly run: (services: DoorServices, call: HttpCall, input: unknown) => unknown
}

export type Access = 'root-key' | 'public' | 'key'
