import { Histogram } from './histogram.ts'
import { firstInLine, type LoadResult, pin } from './load.ts'

/** Requests at a steady rate, whatever the server makes of them. */
export type PacedLoad = {
  /** With a host and port; what is sent when `socketPath` is given goes there instead. */
  url: string
  socketPath: string | null
  /** Every second call goes to this socket instead, so that whatever happens meanwhile happens to both. */
  secondSocketPath?: string | undefined
  headers: Record<string, string>
  /** Sent in turn, over and over. */
  calls: PacedCall[]
  /** To each place. */
  connections: number
  seconds: number
  /** Requests a second over all connections. */
  rate: number
  /** For so long the same is sent before, and not measured: code that runs first is slow, and would be told as the server. */
  warmSeconds?: number
  /** Asked again and again: whether nothing more is to be sent. */
  isOver?: () => boolean
}

/** `expected`: a text that every right answer holds. `charges`: what it should be counted as; 1 unless given. */
export type PacedCall = { path: string; body: string; expected: string; charges?: number }

/**
 * Milliseconds. `undisturbed`: what remains without the calls that were due or under way while the load itself stood still.
 */
export type Told = Pick<LoadResult, 'p50' | 'p99' | 'p999'> & {
  undisturbed: { share: number; p99: number; p999: number }
}

/**
 * `answered`, `failed` and `charged` count what was sent to warm up too; `charged` is right where none failed. `second`: of
 * the calls to the second socket, none of which are in the other latencies; null = there is none.
 */
export type PacedResult = LoadResult & Told & { charged: number; second: Told | null }

export type PacedProgress = { seconds: number; answered: number; failed: number }

/**
 * Sends at the times the rate asks for, and counts a latency from then: a server, or a machine, that stands still for a
 * while makes every request that was due meanwhile late (no coordinated omission). A request due while every connection
 * is busy waits. It looks every 50 µs and rests in between: a core it kept busy all the time would be taken from it by the
 * system for milliseconds, and that would look like the server's doing.
 *
 * Where it stood still itself all the same, as when its core was taken, it knows: from one look to the next more than a
 * millisecond has passed. What was due or under way then, and until it had sent all that had become due meanwhile, is in
 * `latencies` like everything else, and not in `undisturbed`.
 */
export async function sendPaced(
  load: PacedLoad,
  onProgress: (progress: PacedProgress) => void = () => {},
  requests = new Requests(load),
): Promise<Latencies & { second: Latencies | null; answered: number; failed: number; seconds: number }> {
  const pauses = new Pauses()
  let answered = 0
  let failed = 0
  const placeAt = async (socketPath: string | null): Promise<Place> => {
    const latencies = new Histogram()
    const undisturbed = new Histogram()
    const idle: Connection[] = []
    const finished = (connection: Connection, isRight: boolean) => {
      answered++
      if (!isRight) failed++
      const now = Bun.nanoseconds()
      pauses.look(now)
      const us = (now - connection.dueAtNs) / 1000
      latencies.add(us)
      if (pauses.lastNs < connection.dueAtNs) undisturbed.add(us)
      idle.push(connection)
    }
    const opening = Array.from({ length: load.connections }, () =>
      Connection.open({ url: load.url, socketPath }, finished),
    )
    idle.push(...(await Promise.all(opening)))
    return { latencies, undisturbed, idle }
  }
  const first = await placeAt(load.socketPath)
  const second = load.secondSocketPath === undefined ? null : await placeAt(load.secondSocketPath)
  const connections = [...first.idle, ...(second?.idle ?? [])]

  const startNs = Bun.nanoseconds()
  const intervalNs = 1e9 / load.rate
  let total = Math.floor(load.rate * load.seconds)
  let sent = 0
  const dueNs = () => startNs + sent * intervalNs
  let progressAtNs = startNs
  pauses.begin(startNs)
  const broken = () => connections.filter(({ isClosed }) => isClosed).length
  while (sent < total) {
    const now = Bun.nanoseconds()
    pauses.look(now)
    for (; sent < total && dueNs() <= now; sent++) {
      const { idle } = second !== null && isForSecond(sent) ? second : first
      const connection = idle.pop()
      if (connection === undefined) break
      connection.send(requests, sent % requests.count, dueNs())
    }
    if (dueNs() > now) pauses.caughtUp(now)
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
  while (answered < sent && Bun.nanoseconds() < patienceNs) {
    pauses.look(Bun.nanoseconds())
    await rest()
  }
  failed += total - answered // never answered, or never sent
  for (const connection of connections) connection.close()
  const { latencies, undisturbed } = first
  return { latencies, undisturbed, second, answered, failed, seconds }
}

/** Each first of two in turn (0, 1, 1, 0 and so on): of two that leave at the same time, the other one waits for it. */
const isForSecond = (i: number): boolean => ((i ^ (i >> 1)) & 1) === 1

/** `undisturbed`: see {@link Told}. */
type Latencies = { latencies: Histogram; undisturbed: Histogram }
/** Where calls go. */
type Place = Latencies & { idle: Connection[] }

/** When the load itself stood still. */
class Pauses {
  /** Until when the last one had its effect: Infinity while it has. */
  lastNs = Number.NEGATIVE_INFINITY
  private lookedNs = 0

  begin(nowNs: number): void {
    this.lookedNs = nowNs
  }

  /** To be called again and again while there is work. */
  look(nowNs: number): void {
    if (nowNs - this.lookedNs > PAUSE_NS) this.lastNs = Number.POSITIVE_INFINITY
    this.lookedNs = nowNs
  }

  /** All that is due has been sent. */
  caughtUp(nowNs: number): void {
    if (this.lastNs === Number.POSITIVE_INFINITY) this.lastNs = nowNs
  }
}

const PAUSE_NS = 1e6

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
  private readonly charges: Uint32Array

  constructor(load: PacedLoad) {
    const { calls } = load
    this.count = calls.length
    this.starts = new Uint32Array(calls.length + 1)
    this.expected = new Uint32Array(calls.length)
    this.charges = Uint32Array.from(calls, ({ charges = 1 }) => charges)
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
  /** What the first so many calls charge, over and over. */
  chargedBy(sent: number): number {
    let charged = 0
    for (let i = 0; i < sent; i++) charged += this.charges[i % this.count] as number // in range
    return charged
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

/**
 * The same from a process of its own, on the core of the load. Where that may be done, the thread that sends runs whenever
 * it has work: other work of that core, as Postgres writing, would otherwise keep it for milliseconds, and that would be
 * told as the server's. Not so threads that would collect its garbage, and be waited for: it has none. Niceness is no way to
 * that: beside a load at −20, and a loop that should run only when nothing else wants to, Postgres got nothing for ten
 * seconds (Linux 6.18).
 */
export async function sendPacedLoad(load: PacedLoad): Promise<PacedResult> {
  const child = Bun.spawn([...ahead, ...pin(1), process.execPath, import.meta.path], {
    env: { ...process.env, BUN_JSC_useConcurrentGC: '0', BUN_JSC_numberOfGCMarkers: '1' },
    stdin: Buffer.from(JSON.stringify(load)),
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const [output, code] = await Promise.all([new Response(child.stdout).text(), child.exited])
  if (code !== 0) throw new Error(`the load failed with ${code}: ${output}`)
  return JSON.parse(output) as PacedResult // as written below
}

const ahead = firstInLine(['--reset-on-fork'])

if (import.meta.main) {
  const load = JSON.parse(await Bun.stdin.text()) as PacedLoad // from sendPacedLoad
  const requests = new Requests(load)
  load.calls = []
  Bun.gc(true) // now instead of while requests are due
  const ignored = () => {}
  const warmed = await sendPaced({ ...load, seconds: load.warmSeconds ?? 0 }, ignored, requests)
  const { second, answered, failed, seconds, ...first } = await sendPaced(load, ignored, requests)
  const told = ({ latencies, undisturbed }: Latencies): Told => ({
    p50: latencies.percentile(0.5),
    p99: latencies.percentile(0.99),
    p999: latencies.percentile(0.999),
    undisturbed: {
      share: undisturbed.count / latencies.count,
      p99: undisturbed.percentile(0.99),
      p999: undisturbed.percentile(0.999),
    },
  })
  const result: PacedResult = {
    answered: warmed.answered + answered,
    failed: warmed.failed + failed,
    charged: requests.chargedBy(warmed.answered) + requests.chargedBy(answered),
    requestsPerSecond: answered / seconds,
    ...told(first),
    second: second === null ? null : told(second),
  }
  console.log(JSON.stringify(result))
  process.exit(0)
}
