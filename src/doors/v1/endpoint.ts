import type { Static, TSchema } from '@sinclair/typebox'
import type { ErrorCode } from '../../errors.ts'
import type { Access } from '../http/dialect.ts'
import type { DoorServices, Endpoint, HttpCall } from '../http/endpoint.ts'
import { v1 } from './dialect.ts'

type Path = `/v1/${string}`

type Definition<I extends TSchema, R extends TSchema> = {
  input: I
  reply: R
  summary: string
  status?: 200 | 202
  access?: Access
  answersPostToo?: boolean
  isFastPath?: boolean
  introduced?: string
  /** Error codes besides those that all endpoints of its access share. */
  errors?: readonly ErrorCode[]
  answerHeaders?: Record<string, string>
}
type Run<I extends TSchema, R extends TSchema> = (
  services: DoorServices,
  call: HttpCall,
  input: Static<I>,
) => Static<R> | Promise<Static<R>>

/** An endpoint with parameters in the query string. `query.ts` converts texts to numbers, booleans and lists. */
export const get = <I extends TSchema, R extends TSchema>(
  path: Path,
  definition: Definition<I, R>,
  run: Run<I, R>,
): Endpoint => define('GET', path, definition, run)

/** An endpoint with a JSON body. */
export const post = <I extends TSchema, R extends TSchema>(
  path: Path,
  definition: Definition<I, R>,
  run: Run<I, R>,
): Endpoint => define('POST', path, definition, run)

function define<I extends TSchema, R extends TSchema>(
  method: Endpoint['method'],
  path: Path,
  definition: Definition<I, R>,
  run: Run<I, R>,
): Endpoint {
  const { input, reply, summary, status = 200, access = 'root-key', isFastPath = false } = definition
  const { introduced = null, errors = [], answersPostToo = false, answerHeaders = {} } = definition
  return {
    method,
    dialect: v1,
    answersPostToo,
    path,
    input,
    reply,
    summary,
    status,
    access,
    isFastPath,
    introduced,
    errors: [
      ...(access === 'root-key' ? ROOT_KEY_ERRORS : []),
      ...COMMON_ERRORS,
      ...(method === 'POST' ? BODY_ERRORS : []),
      ...errors,
    ],
    requestHeaders: {},
    answerHeaders,
    run: run as Endpoint['run'], // the boundary: doors/http/handle.ts has checked the input against the schema
  }
}

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
