import type { TSchema } from '@sinclair/typebox'
import type { Call } from '../../api/call.ts'
import type { Services } from '../../api/parts.ts'
import type { Config } from '../../config.ts'
import type { ErrorCode } from '../../errors.ts'
import type { ServerState } from '../../lib/server-state.ts'
import type { Access, Dialect } from './dialect.ts'

/** An HTTP request, as far as an endpoint may know it. */
export type HttpCall = Call & {
  /** Any header as sent; null when absent. @param name In lower case. */
  header(name: string): string | null
  /** Response headers that the endpoint adds; also sent with an error. */
  readonly headers: Record<string, string>
}

/** Services of the operations, and the settings that answers depend on. */
export type DoorServices = Services & {
  readonly config: Pick<Config, 'sendsRatelimitHeaders' | 'readyNeedsDatabase'>
  readonly life: { readonly state: ServerState }
}

/**
 * One endpoint of an API. Routing, validation and the OpenAPI description all use this definition. `input` is the schema of
 * a POST's body or a GET's query string; it is checked before `run`.
 */
export type Endpoint = {
  readonly method: 'GET' | 'POST'
  /** The dialect that reads its input and writes its answers. */
  readonly dialect: Dialect
  /** A GET that also answers POST from its query string: some proxies ask with the method of the original request. */
  readonly answersPostToo: boolean
  readonly path: `/${string}`
  readonly input: TSchema
  readonly reply: TSchema
  readonly summary: string
  /** Status of a success. */
  readonly status: 200 | 202
  /**
   * `root-key` endpoints must authenticate, `public` ones need no key, and `key` ones use the key in the request's headers.
   */
  readonly access: Access
  /**
   * True on endpoints called for every request of a customer's product: they skip Elysia (`server/app.ts`) and the removal
   * of unknown fields. Such an endpoint must neither list the fields of its body nor pass the whole body on.
   */
  readonly isFastPath: boolean
  /** The day the API got it, `YYYY-MM-DD`; null when unknown. */
  readonly introduced: string | null
  /** Every error code that it may answer with. The tests' client checks all answers against it. */
  readonly errors: readonly ErrorCode[]
  /** Optional request headers of its own, by name. */
  readonly requestHeaders: Readonly<
    Record<string, { description: string; minLength: number; maxLength: number }>
  >
  /** Its own response headers: name → description. */
  readonly answerHeaders: Readonly<Record<string, string>>
  readonly run: (services: DoorServices, call: HttpCall, input: unknown) => unknown
}
