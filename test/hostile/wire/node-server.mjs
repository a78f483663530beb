import { createServer } from 'node:http'

/**
 * The other reader of the same bytes: Node's own parser in its strict mode. It listens on the Unix socket of its first
 * argument and answers every request with what it took the request for, in the header `X-Echo` (see `echo.ts`).
 */
const waiting = new WeakMap()
const requestsOf = (socket) => {
  if (!waiting.has(socket)) waiting.set(socket, new Set())
  return waiting.get(socket)
}

const server = createServer(
  {
    insecureHTTPParser: false,
    // It is asked for below: Node refuses at once, and resets the connection with the answers before.
    requireHostHeader: false,
    maxHeaderSize: 16_384,
    requestTimeout: 0,
    headersTimeout: 0,
    keepAliveTimeout: 0,
  },
  (request, response) => {
    const requests = requestsOf(request.socket)
    requests.add(request)
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('error', () => requests.delete(request))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('latin1')
      response.on('finish', () => requests.delete(request))
      if (request.headers.host === undefined && request.httpVersion === '1.1') {
        response.writeHead(400, { 'X-Reason': 'no host', Connection: 'close', 'Content-Length': 0 })
        response.end()
        return
      }
      response.writeHead(200, {
        'X-Echo': [request.method, request.url, body].map(encodeURIComponent).join(' '),
        'Content-Length': 0,
      })
      response.end()
    })
  },
)
// A client that has sent all it wants to still reads.
server.httpAllowHalfOpen = true
server.maxHeadersCount = 0
// A socket that is destroyed with bytes unread resets the connection, and the answers are lost: this one reads on.
server.on('connection', (socket) => {
  socket.destroySoon = () => socket.end()
})
const refused = new WeakSet()
/** @param lines Status line and reason. */
function refuse(socket, lines) {
  // Once: what follows is read and dropped, or the connection would be reset.
  if (refused.has(socket)) return
  refused.add(socket)
  // The requests before the broken one are answered first.
  const requests = requestsOf(socket)
  const send = (turns) => {
    if (turns > 0 && [...requests].some(({ complete }) => complete)) setImmediate(send, turns - 1)
    else if (socket.writable)
      socket.end(`HTTP/1.1 ${lines}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)
  }
  send(100)
}
server.on('clientError', ({ code }, socket) =>
  refuse(socket, `${code === 'HPE_HEADER_OVERFLOW' ? 431 : 400} Refused\r\nX-Reason: ${code}`),
)
server.on('connect', (_request, socket) => {
  socket.on('data', () => {})
  socket.on('error', () => {})
  refuse(socket, '405 Refused\r\nX-Reason: CONNECT')
})
server.listen(process.argv[2], () => console.log('listening'))
