import { badRequest } from '../errors.ts'
import { findUnstorable, mayBeUnstorable } from '../lib/json.ts'
import type { Incoming } from './incoming.ts'

/** Largest body in bytes. A hundred keys with meta, or an identity's 64 000 characters, fit many times over. */
export const BODY_BYTES_MAX = 1_048_576

/**
 * The text of the JSON body. Without a JSON content type it is `{}`, as in the v1 API: the first required field then
 * says so.
 * @throws ApiError BAD_REQUEST for a body over {@link BODY_BYTES_MAX}.
 */
export function readBody(incoming: Incoming): string | Promise<string> {
  const length = incoming.header('content-length')
  if (length !== null && Number(length) > BODY_BYTES_MAX) throw tooLarge()
  if (!isJson(incoming.header('content-type'))) return '{}'
  return incoming.text(BODY_BYTES_MAX, tooLarge)
}

/** @throws ApiError BAD_REQUEST for malformed JSON and for text that cannot be stored. */
export function parseBody(text: string): unknown {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    throw badRequest('the JSON in the body is malformed')
  }
  if (mayBeUnstorable(text, body)) {
    const problem = findUnstorable(body)
    if (problem !== null) throw badRequest(`${problem.path}: ${problem.reason}`)
  }
  return body
}

const tooLarge = () => badRequest(`the body is larger than ${BODY_BYTES_MAX} bytes`)

const isJson = (type: string | null): boolean =>
  type === 'application/json' ||
  (type !== null && /^application\/([\w.+-]+\+)?json\s*(;|$)/i.test(type.trim()))
