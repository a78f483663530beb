import { UnreadableBody } from '../../errors.ts'
import { shown } from '../../lib/cut-text.ts'
import { findUnstorable, mayBeUnstorable } from '../../lib/json.ts'
import type { RequestReader } from './request-reader.ts'

/**
 * Largest body in bytes. It is many times larger than a hundred keys with meta, or the 64 000 characters of an identity's
 * meta.
 */
export const BODY_BYTES_MAX = 1_048_576

/**
 * The text of the JSON body. Without a JSON content type it is `{}`, as in the v1 API, and the check then names the first
 * required field.
 * @throws ApiError BAD_REQUEST for a body over {@link BODY_BYTES_MAX}, UNSUPPORTED_MEDIA_TYPE for a compressed one.
 */
export function readBody(incoming: RequestReader): string | Promise<string> {
  const coding = incoming.header('content-encoding')
  if (coding !== null && !/^[ \t,]*(identity[ \t]*(,[ \t,]*|$))*$/i.test(coding))
    throw new UnreadableBody(
      'encoded',
      'Content-Encoding: encoded bodies are not supported; send uncompressed JSON',
    )
  const text = incoming.text(BODY_BYTES_MAX, tooLarge)
  return isJson(incoming.header('content-type')) ? text : '{}'
}

/** @throws ApiError BAD_REQUEST for malformed JSON and for text that Postgres cannot store. */
export function parseBody(text: string): unknown {
  let body: unknown
  try {
    // Some editors and languages put a byte order mark before the text. It is not part of the JSON.
    body = JSON.parse(text.charCodeAt(0) === BYTE_ORDER_MARK ? text.slice(1) : text)
  } catch {
    throw new UnreadableBody(text.trim() === '' ? 'empty' : 'malformed', 'the JSON in the body is malformed')
  }
  if (mayBeUnstorable(text, body)) {
    const problem = findUnstorable(body)
    if (problem !== null) throw new UnreadableBody('unstorable', `${shown(problem.path)}: ${problem.reason}`)
  }
  return body
}

const tooLarge = () => new UnreadableBody('too-large', `the body is larger than ${BODY_BYTES_MAX} bytes`)

const BYTE_ORDER_MARK = 0xfeff

/** Whether a content type says JSON. */
export const isJson = (type: string | null): boolean =>
  type === 'application/json' ||
  (type !== null && /^application\/([\w.+-]+\+)?json\s*(;|$)/i.test(type.trim()))
