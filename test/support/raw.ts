import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

/** Everything received on one connection. */
export type RawAnswer = {
  /** Status of the first answer that is not interim; 0 = there was none. */
  status: number
  /** Everything that was received, in Latin-1. */
  text: string
}

/**
 * Sends raw bytes, which no HTTP client would send, and reads until the other side closes.
 * @param url Only scheme, host and port are used.
 * @param bytes In Latin-1.
 * @param options.lingerMs How long to wait for more after a complete answer, when the bytes may contain a second request.
 * @param options.patienceMs After this long without an answer or an end, the connection is closed.
 */
export function sendRaw(
  url: string,
  bytes: string,
  { lingerMs = 0, patienceMs = 20_000 } = {},
): Promise<RawAnswer> {
  const { hostname: host, port, protocol } = new URL(url)
  const { promise, resolve } = Promise.withResolvers<RawAnswer>()
  const where = { host, port: Number(port) }
  const socket: Socket =
    protocol === 'https:' ? connectTls({ ...where, rejectUnauthorized: false }) : connect(where)
  let text = ''
  const patience = setTimeout(() => socket.destroy(), patienceMs)
  socket.on(protocol === 'https:' ? 'secureConnect' : 'connect', () =>
    socket.write(Buffer.from(bytes, 'latin1')),
  )
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1')
    if (isWhole(finalOf(text))) setTimeout(() => socket.destroy(), lingerMs)
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    clearTimeout(patience)
    resolve({ status: Number(/^HTTP\/1\.[01] (\d{3})/.exec(finalOf(text))?.[1] ?? 0), text })
  })
  return promise
}

/** Head and body without the interim answers before them, such as `100 Continue`. */
const finalOf = (text: string): string => text.replace(/^(HTTP\/1\.1 1\d\d[^\0]*?\r\n\r\n)+/, '')

/** An answer with a length is complete after it; the server may keep the connection open. */
function isWhole(text: string): boolean {
  const headEnd = text.indexOf('\r\n\r\n')
  if (headEnd === -1) return false
  const head = text.slice(0, headEnd)
  if (/^transfer-encoding: *chunked/im.test(head)) return text.endsWith('\r\n0\r\n\r\n')
  const length = /^content-length: *(\d+)/im.exec(head)?.[1]
  return length !== undefined && text.length >= headEnd + 4 + Number(length)
}
