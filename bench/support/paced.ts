import { Histogram } from './histogram.ts'
import { type LoadResult, pin } from './load.ts'

/** Requests at a steady rate, whatever the server makes of them. */
export type PacedLoad = {
  /** With a host and port; what is sent when `socketPath` is given goes there instead. */
  url: string
  socketPath: string | null
  headers: Record<string, string>
  /** Sent in turn, over and over. */
  calls: PacedCall[]
  connections: number
  seconds: number
  /** Requests a second over all connections. */
  rate: number
  /** For so long the same is sent before, and not measured: code that runs first is slow, and would be told as the server. */
  warmSeconds?: number
  /** Asked again and again: whether nothing more is to be sent. */
  isOver?: () => boolean
}

/** `expected`: a text that every right answer holds. */
export type PacedCall = { path: string; body: string; expected: string }

/** `answered` and `failed` count what was sent to warm up too; latencies are milliseconds. */
export type PacedResult = LoadResult

export type PacedProgress = { seconds: number; answered: number; failed: number }

/**
 * Sends at the times the rate asks for, and counts a latency from then: a server, or a machine, that stands still for a
 * while makes every request that was due meanwhile late (no coordinated omission). A request due while every connection
 * is busy waits. It looks every 50 µs and rests in between: a core it kept busy all the time would be taken from it by the
 * system for milliseconds, and that would look like the server's doing.
 */
export async function sendPaced(
  load: PacedLoad,
  onProgress: (progress: PacedProgress) => void = () => {},
  requests = new Requests(load),
): Promise<{ latencies: Histogram; answered: number; failed: number; seconds: number }> {
  let answered = 0
  let failed = 0
  const latencies = new Histogram()
  const idle: Connection[] = []
  const finished = (connection: Connection, isRight: boolean) => {
    answered++
    if (!isRight) failed++
    latencies.add((Bun.nanoseconds() - connection.dueAtNs) / 1000)
    idle.push(connection)
  }
  const opening = Array.from({ length: load.connections }, () => Connection.open(load, finished))
  const connections = await Promise.all(opening)
  idle.push(...connections)

  const startNs = Bun.nanoseconds()
  const intervalNs = 1e9 / load.rate
  let total = Math.floor(load.rate * load.seconds)
  let sent = 0
  const dueNs = () => startNs + sent * intervalNs
  let progressAtNs = startNs
  const broken = () => connections.filter(({ isClosed }) => isClosed).length
  while (sent < total) {
    const now = Bun.nanoseconds()
    for (; sent < total && dueNs() <= now; sent++) {
      const connection = idle.pop()
      if (connection === undefined) break
      connection.send(requests, sent % requests.count, dueNs())
    }
    if (now - progressAtNs >= 1e9) {
      progressAtNs = now
      onProgress({ seconds: (now - startNs) / 1e9, answered, failed })
      if (broken() === connections.length) break
    }
    if (load.isOver?.() === true) total = sent
    // Far behind what was asked: the rate cannot be had.
    if (now - startNs > (load.seconds + PATIENCE_SECONDS) * 1e9) break
    await rest()
  }
  const seconds = (Bun.nanoseconds() - startNs) / 1e9
  const patienceNs = Bun.nanoseconds() + PATIENCE_SECONDS * 1e9
  while (answered < sent && Bun.nanoseconds() < patienceNs) await rest()
  failed += total - answered // never answered, or never sent
  for (const connection of connections) connection.close()
  return { latencies, answered, failed, seconds }
}

async function rest(): Promise<void> {
  Atomics.wait(NEVER_WOKEN, 0, 0, REST_MS)
  await new Promise((resolve) => setImmediate(resolve))
}

const PATIENCE_SECONDS = 5
const REST_MS = 0.05
const NEVER_WOKEN = new Int32Array(new SharedArrayBuffer(4))

/**
 * All that is sent, in one piece of memory: a hundred thousand buffers took the collector 35 ms to look through, which was told
 * as the server's p99.9.
 */
class Requests {
  readonly count: number
  readonly bytes: Buffer
  /** Where each begins, and the last ends. */
  private readonly starts: Uint32Array
  private readonly expectations: Buffer[] = []
  private readonly expected: Uint32Array

  constructor(load: PacedLoad) {
    const { calls } = load
    this.count = calls.length
    this.starts = new Uint32Array(calls.length + 1)
    this.expected = new Uint32Array(calls.length)
    const texts = new Map<string, number>()
    const parts: Buffer[] = []
    let end = 0
    for (const [i, call] of calls.entries()) {
      const part = requestOf(load, call)
      parts.push(part)
      end += part.length
      this.starts[i + 1] = end
      const known = texts.get(call.expected) ?? texts.size
      if (known === texts.size) {
        texts.set(call.expected, known)
        this.expectations.push(Buffer.from(call.expected))
      }
      this.expected[i] = known
    }
    this.bytes = Buffer.concat(parts)
  }

  /** @param i Below `count`, as below. */
  startOf(i: number): number {
    return this.starts[i] as number // in range
  }
  lengthOf(i: number): number {
    return this.startOf(i + 1) - this.startOf(i)
  }
  /** What every right answer to it holds. */
  expectedOf(i: number): Buffer {
    return this.expectations[this.expected[i] as number] as Buffer // in range
  }
}

/** One kept-alive connection with at most one request under way. */
class Connection {
  dueAtNs = 0
  isClosed = false
  /** What has come of an answer that is not whole; null = nothing. */
  private held: Buffer | null = null
  private expected: Buffer = HEAD_END
  private socket: Bun.Socket | null = null

  private constructor(private readonly finished: (connection: Connection, isRight: boolean) => void) {}

  static async open(
    { url, socketPath }: Pick<PacedLoad, 'url' | 'socketPath'>,
    finished: Connection['finished'],
  ): Promise<Connection> {
    const connection = new Connection(finished)
    const socket = {
      data: (_: Bun.Socket, chunk: Buffer) => connection.receive(chunk),
      close: () => {
        connection.isClosed = true
      },
      error: () => {
        connection.isClosed = true
      },
    }
    const { hostname, port } = new URL(url)
    connection.socket =
      socketPath === null
        ? await Bun.connect({ hostname, port: Number(port), socket })
        : await Bun.connect({ unix: socketPath, socket })
    return connection
  }

  send(requests: Requests, i: number, dueAtNs: number): void {
    this.dueAtNs = dueAtNs
    this.expected = requests.expectedOf(i)
    const { bytes } = requests
    const start = requests.startOf(i)
    const length = requests.lengthOf(i)
    const written = Math.max(this.socket?.write(bytes, start, length) ?? 0, 0)
    // A request larger than the socket takes at once: the rest when it drains. Small ones never come here.
    if (written < length) this.sendRest(bytes.subarray(start + written, start + length))
  }

  close(): void {
    this.socket?.end()
  }

  private sendRest(rest: Buffer): void {
    if (this.isClosed) return
    setImmediate(() => {
      const written = Math.max(this.socket?.write(rest) ?? 0, 0)
      if (written < rest.length) this.sendRest(rest.subarray(written))
    })
  }

  /** Looks at the bytes themselves: texts made of them would be collected while requests are due. */
  private receive(chunk: Buffer): void {
    const bytes = this.held === null ? chunk : Buffer.concat([this.held, chunk])
    const bodyAt = bytes.indexOf(HEAD_END) + HEAD_END.length
    if (bodyAt < HEAD_END.length || bytes.length < bodyAt + contentLength(bytes)) {
      this.held = Buffer.from(bytes) // a copy: the chunk is not ours to keep
      return
    }
    this.held = null
    this.finished(this, bytes.indexOf(OK) === 0 && bytes.indexOf(this.expected, bodyAt) >= 0)
  }
}

const HEAD_END = Buffer.from('\r\n\r\n')
const OK = Buffer.from('HTTP/1.1 200 ')
/** However its name is written. */
const LENGTH = Buffer.from('ength: ')

/** Infinity where an answer does not say: then it is never whole. */
function contentLength(bytes: Buffer): number {
  let at = bytes.indexOf(LENGTH) + LENGTH.length
  if (at < LENGTH.length) return Number.POSITIVE_INFINITY
  let length = 0
  for (let digit = (bytes[at] ?? 0) - ZERO; digit >= 0 && digit <= 9; digit = (bytes[++at] ?? 0) - ZERO)
    length = 10 * length + digit
  return length
}
const ZERO = 48

function requestOf({ url, headers }: PacedLoad, { path, body }: PacedCall): Buffer {
  const lines = Object.entries({
    Host: new URL(url).host,
    ...headers,
    'Content-Length': Buffer.byteLength(body),
  })
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
  return Buffer.from(`POST ${path} HTTP/1.1\r\n${head}\r\n${body}`)
}

/** The same from a process of its own, on the core of the load. */
export async function sendPacedLoad(load: PacedLoad): Promise<PacedResult> {
  const child = Bun.spawn([...pin(1), process.execPath, import.meta.path], {
    stdin: Buffer.from(JSON.stringify(load)),
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const [output, code] = await Promise.all([new Response(child.stdout).text(), child.exited])
  if (code !== 0) throw new Error(`the load failed with ${code}: ${output}`)
  return JSON.parse(output) as PacedResult // as written below
}

if (import.meta.main) {
  const load = JSON.parse(await Bun.stdin.text()) as PacedLoad // from sendPacedLoad
  const requests = new Requests(load)
  load.calls = []
  Bun.gc(true) // now instead of while requests are due
  const ignored = () => {}
  const warmed = await sendPaced({ ...load, seconds: load.warmSeconds ?? 0 }, ignored, requests)
  const { latencies, answered, failed, seconds } = await sendPaced(load, ignored, requests)
  const result: PacedResult = {
    answered: warmed.answered + answered,
    failed: warmed.failed + failed,
    requestsPerSecond: answered / seconds,
    p50: latencies.percentile(0.5),
    p99: latencies.percentile(0.99),
    p999: latencies.percentile(0.999),
  }
  console.log(JSON.stringify(result))
  process.exit(0)
}
