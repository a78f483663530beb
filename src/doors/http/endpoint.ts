import type { Static, TSchema } from '@sinclair/typebox'
import type { ErrorCode } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'

/** What a verb may know of the HTTP request it answers. */
export type Call = {
  /** `req_…`; the same in the response header, in error bodies and in logs. */
  readonly requestId: string
  /** The Authorization header as sent; null when absent. */
  readonly authorization: string | null
  readonly userAgent: string | null
  /** Any other header as sent; null when absent. @param name In lower case. */
  header(name: string): string | null
  /** The client's address as text, for allow lists and the audit log; null when it is not known. */
  clientAddress(): string | null
  /** Response headers beyond the usual ones, set by the verb; also sent with an error. */
  readonly headers: Record<string, string>
}

/**
 * One method of the API: path, schemas, verb. The one source for routing, validation and the OpenAPI description.
 * `input` is the body of a POST and the query string of a GET; it is checked before the verb runs.
 */
export type Endpoint = {
  readonly method: 'GET' | 'POST'
  /** A read that answers POST just the same, from its query string: some proxies ask with the method they were asked with. */
  readonly answersPostToo: boolean
  readonly path: `/v1/${string}`
  readonly input: TSchema
  readonly reply: TSchema
  readonly summary: string
  /** Status of a success. */
  readonly status: 200 | 202
  /**
   * `public` endpoints answer without a root key, `key` ones about the key in the request's headers; every other verb
   * must authenticate.
   */
  readonly access: Access
  /**
   * On the path of every request of somebody's product: routed past Elysia. See `app.ts`. Its verb gets a body as it came,
   * with fields that the schema does not know: it may neither list its fields nor pass it on as a whole.
   */
  readonly isHot: boolean
  /** The day the v1 API got it, `YYYY-MM-DD`, where known. */
  readonly introduced: string | null
  /** Every code it may answer with. The tests' client holds all answers to it. */
  readonly errors: readonly ErrorCode[]
  /** Headers of its own in the answer: name → what it says. */
  readonly answerHeaders: Readonly<Record<string, string>>
  readonly run: (deps: Deps, call: Call, input: unknown) => unknown
}

type Access = 'root-key' | 'public' | 'key'

type Definition<I extends TSchema, R extends TSchema> = {
  input: I
  reply: R
  summary: string
  status?: 200 | 202
  access?: Access
  answersPostToo?: boolean
  isHot?: boolean
  introduced?: string
  /** Beyond those that every endpoint of its access shares. */
  errors?: readonly ErrorCode[]
  answerHeaders?: Record<string, string>
}
type Verb<I extends TSchema, R extends TSchema> = (
  deps: Deps,
  call: Call,
  input: Static<I>,
) => Static<R> | Promise<Static<R>>

/** A read: parameters in the query string. See `doors/http/query.ts` for how texts become numbers, booleans and lists. */
export const get = <I extends TSchema, R extends TSchema>(
  path: Endpoint['path'],
  definition: Definition<I, R>,
  run: Verb<I, R>,
): Endpoint => define('GET', path, definition, run)

/** Everything else: a JSON body. */
export const post = <I extends TSchema, R extends TSchema>(
  path: Endpoint['path'],
  definition: Definition<I, R>,
  run: Verb<I, R>,
): Endpoint => define('POST', path, definition, run)

function define<I extends TSchema, R extends TSchema>(
  method: Endpoint['method'],
  path: Endpoint['path'],
  definition: Definition<I, R>,
  run: Verb<I, R>,
): Endpoint {
  const { input, reply, summary, status = 200, access = 'root-key', isHot = false } = definition
  const { introduced = null, errors = [], answersPostToo = false, answerHeaders = {} } = definition
  return {
    method,
    answersPostToo,
    path,
    input,
    reply,
    summary,
    status,
    access,
    isHot,
    introduced,
    errors: [
      ...(access === 'root-key' ? ROOT_KEY_ERRORS : []),
      ...COMMON_ERRORS,
      ...(method === 'POST' ? BODY_ERRORS : []),
      ...errors,
    ],
    answerHeaders,
    run: run as Endpoint['run'], // the boundary itself: doors/http/handle.ts has checked what it passes against `input`
  }
}

const COMMON_ERRORS = ['BAD_REQUEST', 'INTERNAL_SERVER_ERROR'] as const
const BODY_ERRORS = ['UNSUPPORTED_MEDIA_TYPE'] as const
/** What `authenticate` may throw. */
const ROOT_KEY_ERRORS = [
  'UNAUTHORIZED',
  'FORBIDDEN',
  'DISABLED',
  'EXPIRED',
  'USAGE_EXCEEDED',
  'INSUFFICIENT_PERMISSIONS',
  'RATE_LIMITED',
] as const
