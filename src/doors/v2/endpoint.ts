import { type Static, type TSchema, Type } from '@sinclair/typebox'
import type { Keep } from '../../api/idempotency/answers.ts'
import { ApiError, type ErrorCode } from '../../errors.ts'
import { bearer } from '../../verify/secret.ts'
import type { Access } from '../http/dialect.ts'
import type { DoorServices, Endpoint, HttpCall } from '../http/endpoint.ts'
import { v2 } from './dialect.ts'
import { V2Error } from './errors.ts'
import { type Listed, listOf } from './page.ts'

type Path = `/v2/${string}`
type Run<I extends TSchema, R> = (services: DoorServices, call: HttpCall, input: Static<I>) => R | Promise<R>

type Definition<I extends TSchema> = {
  input: I
  summary: string
  isFastPath?: boolean
  requestHeaders?: Endpoint['requestHeaders']
  /** Error codes besides those that all endpoints share. */
  errors?: readonly ErrorCode[]
}

/** An endpoint with a JSON body. Its run function returns what becomes `data`. */
export const post = <I extends TSchema, R extends TSchema>(
  path: Path,
  { reply, ...definition }: Definition<I> & { reply: R },
  run: Run<I, Static<R>>,
): Endpoint => define('POST', path, { ...definition, reply: envelopeOf(reply) }, run)

/**
 * A {@link post} that makes something. A call that is sent again gets the first one's answer: see `CreateAnswers`.
 * @param run Passes `keep` to the operation, for the transaction that makes it.
 */
export const create = <I extends TSchema, R extends TSchema>(
  path: Path,
  definition: Definition<I> & { reply: R },
  run: (
    services: DoorServices,
    call: HttpCall,
    input: Static<I>,
    keep: Keep<Static<R>>,
  ) => Promise<Static<R>>,
): Endpoint =>
  post(path, { ...definition, requestHeaders: IDEMPOTENCY_KEY }, async (services, call, input) => {
    const key = readIdempotencyKey(call)
    const rootKey = bearer(call.authorization ?? '')
    const attempt = services.creates.attempt<Static<R>>(rootKey, { path, key, body: JSON.stringify(input) })
    call.admit = (workspaceId) => attempt.find(workspaceId)
    return await attempt.carryOut(() => run(services, call, input, attempt.keep))
  })

/** The header's bytes as sent. @throws ApiError BAD_REQUEST */
function readIdempotencyKey(call: HttpCall): string | null {
  const key = call.header('idempotency-key')
  if (key !== null && (key.length === 0 || key.length > IDEMPOTENCY_KEY_MAX))
    throw new ApiError(
      'BAD_REQUEST',
      `the Idempotency-Key header must have 1 to ${IDEMPOTENCY_KEY_MAX} characters`,
    )
  return key
}
const IDEMPOTENCY_KEY_MAX = 255
const IDEMPOTENCY_KEY = {
  'Idempotency-Key': {
    description: 'Your name for this call. A call that is sent again with it gets the same answer.',
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_MAX,
  },
}

/** An endpoint that answers a page of a list. */
export const list = <I extends TSchema, R extends TSchema>(
  path: Path,
  { item, ...definition }: Definition<I> & { item: R },
  run: Run<I, Listed<Static<R>>>,
): Endpoint =>
  define('POST', path, { ...definition, reply: Type.Object({ meta: Meta, ...listOf(item).properties }) }, run)

/** An endpoint without input and without a root key. */
export const publicGet = <R extends TSchema>(
  path: Path,
  { reply, summary, errors }: { reply: R; summary: string; errors?: readonly ErrorCode[] },
  run: (services: DoorServices) => Static<R> | Promise<Static<R>>,
): Endpoint =>
  define(
    'GET',
    path,
    {
      input: Type.Object({}),
      reply: envelopeOf(reply),
      summary,
      access: 'public',
      ...(errors === undefined ? {} : { errors }),
    },
    run,
  )

const Meta = Type.Object(
  { requestId: Type.String({ description: 'Id of the request, also in the logs.' }) },
  { description: 'About the request.' },
)
const envelopeOf = <R extends TSchema>(reply: R) =>
  Type.Object({ meta: Meta, data: { description: 'The answer.', ...reply } })

function define<I extends TSchema>(
  method: Endpoint['method'],
  path: Path,
  definition: Definition<I> & { reply: TSchema; access?: Access },
  run: Run<I, unknown>,
): Endpoint {
  const { input, reply, summary, access = 'root-key', isFastPath = false } = definition
  const { requestHeaders = {}, errors = [] } = definition
  return {
    method,
    dialect: v2,
    answersPostToo: false,
    path,
    input,
    reply,
    summary,
    status: 200,
    access,
    isFastPath,
    introduced: null,
    errors: [
      ...(access === 'root-key' ? ROOT_KEY_ERRORS : []),
      ...COMMON_ERRORS,
      ...(method === 'POST' ? BODY_ERRORS : []),
      ...errors,
    ],
    requestHeaders,
    answerHeaders: {},
    run: (access === 'root-key' ? afterBearer(run) : run) as Endpoint['run'], // the boundary: doors/http/handle.ts has checked the input against the schema
  }
}

/** The v2 API takes a root key only after `Bearer `. The v1 API takes it in other spellings too. */
const afterBearer =
  <I extends TSchema>(run: Run<I, unknown>): Run<I, unknown> =>
  (services, call, input) => {
    if (!isBearer(call.authorization))
      throw new V2Error(
        'unkey/authentication/malformed',
        'BAD_REQUEST',
        'the Authorization header must be "Bearer " and a root key',
      )
    return run(services, call, input)
  }

const isBearer = (authorization: string | null): boolean =>
  authorization?.startsWith('Bearer ') === true && authorization.length > 'Bearer '.length

const COMMON_ERRORS = ['BAD_REQUEST', 'INTERNAL_SERVER_ERROR'] as const
const BODY_ERRORS = ['UNSUPPORTED_MEDIA_TYPE'] as const
/** Error codes of `authenticate`. */
const ROOT_KEY_ERRORS = [
  'UNAUTHORIZED',
  'FORBIDDEN',
  'DISABLED',
  'EXPIRED',
  'USAGE_EXCEEDED',
  'INSUFFICIENT_PERMISSIONS',
  'RATE_LIMITED',
] as const
