import { STATUS_CODES } from 'node:http'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { type ApiError, InvalidInput, UnreadableBody } from '../../errors.ts'
import { cutText } from '../../lib/cut-text.ts'
import { PermissionSyntaxError } from '../../verify/permission-query.ts'
import { isJson } from '../http/body.ts'
import type { Dialect, Envelope, JsonType } from '../http/dialect.ts'
import { knownFieldsOf } from '../http/known-fields.ts'
import { WIRE_STATUSES } from '../http/statuses.ts'
import { type ErrorDetail, InvalidRequest, problemTypeOf } from './errors.ts'
import { Listed } from './page.ts'
import { PROBLEMS, type ProblemType, TYPE_BASE } from './problems.ts'
import { onlyLongInUnits, schemaProblems } from './schema-problems.ts'

/**
 * Unkey's v2 API on the wire: answers in an envelope, errors as problem details (RFC 9457) within it, unknown fields
 * refused where the schema is closed.
 */
export const v2: Dialect = {
  prefix: '/v2/',

  checkHeaders(request, { access, method }) {
    if (access === 'root-key' && (request.header('authorization') ?? '').trim() === '')
      throw new InvalidRequest('Authorization header for the bearer scheme is missing', [
        {
          message: 'Authorization header not found',
          location: 'security',
          fix: 'Add an Authorization header: Bearer <root key>',
        },
      ])
    const contentType = request.header('content-type')
    if (method === 'POST' && !isJson(contentType))
      throw new InvalidRequest(
        `POST request body for '${request.path}' has the content type ${contentType === null ? 'none' : cutText(contentType, 100)}`,
        [
          {
            message: 'the content type is not JSON',
            location: 'requestBody',
            fix: 'Send the header Content-Type: application/json',
          },
        ],
      )
  },

  reader({ path, input, isFastPath }) {
    const checker = TypeCompiler.Compile(input)
    const known = isFastPath ? null : knownFieldsOf(input)
    return (body) => {
      if (!checker.Check(body) && !onlyLongInUnits(checker.Errors(body)))
        throw new InvalidRequest(invalidBody(path), schemaProblems(input, checker.Errors(body)))
      return known === null ? body : known(body)
    }
  },

  success: (reply, { requestId }) =>
    reply instanceof Listed
      ? { meta: { requestId }, data: reply.data, pagination: reply.pagination }
      : { meta: { requestId }, data: reply },

  failure(error, envelope) {
    const type = problemTypeOf(error)
    const status = type === null ? statusOf(error) : PROBLEMS[type].status
    const details = detailsOf(error)
    return {
      status,
      contentType: error instanceof InvalidRequest ? 'application/json' : errorTypeFor(envelope),
      body: {
        meta: { requestId: envelope.requestId },
        error: {
          title: type === null ? (STATUS_CODES[status] ?? 'Error') : PROBLEMS[type].title,
          detail: detailOf(error, type, envelope),
          status,
          type: type === null ? 'about:blank' : `${TYPE_BASE}${type}`,
          ...(WITH_ERRORS.includes(status) ? { errors: details } : {}),
        },
      },
      headers: null,
    }
  },
}

/** Clients cannot read an error of these statuses without the list. */
const WITH_ERRORS = [400, 408, 413, 415]

const invalidBody = (path: string) => `POST request body for '${path}' failed to validate schema`

function detailOf(error: ApiError, type: ProblemType | null, { path }: Envelope): string {
  // The same for every key that is no root key of this server.
  if (type === 'unkey/authentication/key_not_found') return 'root key not found'
  if (error instanceof UnreadableBody && (error.reason === 'malformed' || error.reason === 'unstorable'))
    return invalidBody(path)
  if (error instanceof UnreadableBody && error.reason === 'empty')
    return `POST request body for '${path}' is empty`
  if (error instanceof InvalidInput) return `${error.field}: ${error.message}`
  return error.message
}

function detailsOf(error: ApiError): readonly ErrorDetail[] {
  if (error instanceof InvalidRequest) return error.details
  if (error instanceof InvalidInput) {
    const { index, field, message } = error
    return [{ message, location: `${index === null ? '' : '/items'}${pointerOf(field)}` }]
  }
  if (error instanceof PermissionSyntaxError)
    return [{ message: error.message, location: '/properties/permissions' }]
  if (!(error instanceof UnreadableBody)) return NONE
  return [{ message: error.message, location: 'requestBody', fix: FIXES[error.reason] }]
}

/** `keys.0.hash` is at `/properties/keys/items/properties/hash`. */
const pointerOf = (field: string): string =>
  field
    .split('.')
    .map((part) => (/^\d+$/.test(part) ? '/items' : `/properties/${part}`))
    .join('')

const NONE: readonly ErrorDetail[] = []
const FIXES: Record<UnreadableBody['reason'], string> = {
  'too-large': 'Send a smaller body',
  encoded: 'Send the body without a Content-Encoding',
  empty: 'Send a JSON body; {} if the call has no fields',
  malformed: 'Send a body that is valid JSON',
  unstorable: 'Leave out the characters that cannot be stored',
}

/** Of errors that have no type in the v2 API: those of unknown paths and of the wire. */
function statusOf({ code }: ApiError): number {
  if (code === 'NOT_FOUND') return 404
  if (code === 'METHOD_NOT_ALLOWED') return 405
  return code in WIRE_STATUSES ? WIRE_STATUSES[code as keyof typeof WIRE_STATUSES] : 500 // the check before it
}

/** Problem details are named as such only to clients that accept them. */
function errorTypeFor({ accept }: Envelope): JsonType {
  return accept !== null && /application\/problem\+json|application\/\*|\*\/\*/i.test(accept)
    ? 'application/problem+json'
    : 'application/json'
}
