import { TypeCompiler } from '@sinclair/typebox/compiler'
import { RootKeyLimited } from '../../api/root-keys/authorize.ts'
import { type ApiError, badRequest, InvalidInput } from '../../errors.ts'
import { headerText } from '../../lib/header-text.ts'
import { docsUrl } from '../http/answer.ts'
import type { Dialect } from '../http/dialect.ts'
import { knownFieldsOf } from '../http/known-fields.ts'
import { readQuery } from './query.ts'
import { STATUSES } from './statuses.ts'
import { validationMessage } from './validation-message.ts'

/** Unkey's v1 API on the wire: bare results, one error shape, unknown fields dropped, its own validation texts. */
export const v1: Dialect = {
  prefix: '/v1/',
  checkHeaders: null,

  reader({ method, input, isFastPath }) {
    const checker = TypeCompiler.Compile(input)
    const check = (value: unknown): void => {
      if (!checker.Check(value)) throw badRequest(validationMessage(input, checker.Errors(value)))
    }
    if (method === 'GET')
      return (search) => {
        const query = readQuery(input, search as URLSearchParams) // the input of a GET is always its parameters
        check(query)
        return query
      }
    // Fast endpoints name each field that they read, so they need no copy without unknown fields.
    const known = isFastPath ? null : knownFieldsOf(input)
    return (body) => {
      check(body)
      return known === null ? body : known(body)
    }
  },

  success: (reply) => reply,

  failure: (error, { requestId, publicUrl }) => ({
    status: STATUSES[error.code],
    contentType: 'application/json',
    body: {
      error: {
        code: error.code,
        docs: docsUrl(publicUrl, error.code),
        message: messageOf(error),
        requestId,
      },
    },
    headers:
      error instanceof RootKeyLimited ? { 'Unkey-Ratelimit-Triggered': headerText(error.limitName) } : null,
  }),
}

/** The message with the field's place before it, as in messages of the schema check. */
function messageOf(error: ApiError): string {
  if (!(error instanceof InvalidInput)) return error.message
  const { index, field, message } = error
  return `${index === null ? '' : `${index}.`}${field}: ${message}`
}
