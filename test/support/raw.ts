import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

/** What came back on a connection of its own. */
export type RawAnswer = {
  /** Of the first answer that is not an interim one; 0 = none came. */
  status: number
  /** Everything that was received, in Latin-1. */
  text: string
}

/**
 * Sends these bytes as they are, which no HTTP client would, and reads until the other side closes.
 * @param url Only its scheme, host and port count.
 * @param bytes In Latin-1.
 * @param options.lingerMs How long to wait for more after a whole answer: for bytes that may hide a second request.
 * @param options.patienceMs What is neither answered nor closed by then is left alone.
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

/** The answer's own head and body: without the interim ones before it, as `100 Continue`. */
const finalOf = (text: string): string => text.replace(/^(HTTP\/1\.1 1\d\d[^\0]*?\r\n\r\n)+/, '')

/** An answer that measures itself has all come; the server might keep the connection. */
function isWhole(text: string): boolean {
  const headEnd = text.indexOf('\r\n\r\n')
  if (headEnd === -1) return false
  const head = text.slice(0, headEnd)
  if (/^transfer-encoding: *chunked/im.test(head)) return text.endsWith('\r\n0\r\n\r\n')
  const length = /^content-length: *(\d+)/im.exec(head)?.[1]
  return length !== undefined && text.length >= headEnd + 4 + Number(length)
}
