import { STATUS_CODES } from 'node:http'
import { type Answer, headerLine, headersOf, httpDate } from './answer.ts'

/** How to write an answer as an HTTP/1.1 message. */
export type MessageForm = {
  /** The connection closes after it. */
  isLast: boolean
  /** The request was HEAD: the headers without the content. */
  isHead: boolean
}

/** A JSON answer as an HTTP/1.1 message. Fast endpoints use `response-encoder.ts` instead. */
export const messageOf = ({ status, text, envelope, tookMs }: Answer, form: MessageForm): Buffer =>
  message(
    status,
    Object.entries(headersOf(envelope, 'application/json', tookMs)),
    typeof text === 'string' ? Buffer.from(text) : text,
    form,
  )

export const messageOfResponse = async (response: Response, form: MessageForm): Promise<Buffer> =>
  message(response.status, response.headers, Buffer.from(await response.arrayBuffer()), form)

function message(
  status: number,
  headers: Iterable<[string, string]>,
  content: Buffer,
  { isLast, isHead }: MessageForm,
): Buffer {
  let lines = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}\r\n`
  for (const [name, value] of headers) lines += headerLine(name, value)
  if (isLast) lines += 'Connection: close\r\n'
  // Neither has content, and the length of a 304 would be that of the content not sent.
  if (status !== 204 && status !== 304) lines += `Content-Length: ${content.length}\r\n`
  lines += `Date: ${httpDate()}\r\n\r\n`
  const bytes = Buffer.allocUnsafeSlow(lines.length + (isHead ? 0 : content.length))
  bytes.write(lines, 'latin1')
  if (!isHead) content.copy(bytes, lines.length)
  return bytes
}
