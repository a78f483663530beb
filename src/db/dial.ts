import { EventEmitter } from 'node:events'
import { readFileSync } from 'node:fs'
import { isIP, Socket } from 'node:net'
import { join } from 'node:path'
import {
  type ConnectionOptions,
  checkServerIdentity,
  connect as connectTls,
  type PeerCertificate,
} from 'node:tls'
import type { DatabaseUrl, Tls } from '../lib/database-url.ts'
import { systemTimers, within } from '../lib/timers.ts'

/**
 * Opens connections to the hosts of a `DATABASE_URL`. The driver takes what {@link dialer} returns for a socket. The
 * driver's own way is not enough: 3.4.9 splits IPv6 addresses at colons, retries refusing hosts for ever, speaks TLS to a
 * server that declined it, and compares the certificate of an address with `localhost`.
 *
 * 1. Hosts are tried in turn, beginning with the last one used. A host is skipped when it refuses, does not answer in time,
 *    is starting up, or is read-only although the URL wants a writable one.
 * 2. Read-only is known before the first ReadyForQuery: since version 14 Postgres reports `in_hot_standby` and
 *    `default_transaction_read_only`. A pooler may not report them; then it counts as writable.
 * 3. When all are skipped, a read-only host is taken; if there is none, the connection fails with the last host's error.
 * 4. `sslmode=allow` begins without TLS and `prefer` with it. A host that refuses that way is asked in the other.
 */
export function dialer(
  url: Pick<DatabaseUrl, 'hosts' | 'tls' | 'connectTimeoutSeconds' | 'wantsWritable'>,
): () => Socket {
  const state: Dialing = { at: 0, passedOver: 0, turned: new Set() }
  // The driver uses nothing but an EventEmitter and the methods below.
  return () => new DialledSocket(url, state) as unknown as Socket // see above
}

/** State of one pool. */
type Dialing = {
  /** The next host. */
  at: number
  /** How many hosts in a row were skipped after they had answered. */
  passedOver: number
  /** Hosts that refused the way that `sslmode` tries first, with or without TLS. They are asked in the other way. */
  turned: Set<number>
}

class DialledSocket extends EventEmitter {
  readyState: 'opening' | 'open' | 'closed' = 'opening'
  host = ''
  port = 0
  private inner: Socket | null = null
  /** Bytes that the driver wrote before the connection was open. */
  private early: Buffer[] = []
  private startup: Startup | null = null
  /** Aborts the connection that is being opened. */
  private giveUp: () => void = () => {}
  /** Index of the dialled host, counted over all rounds. */
  private at = 0
  /** This connection is the second attempt of `allow` or `prefer`. */
  private isTurned = false

  constructor(
    private readonly url: Parameters<typeof dialer>[0],
    private readonly state: Dialing,
  ) {
    super()
    void this.dial()
  }

  write(chunk: Buffer, done?: () => void): boolean {
    if (this.inner !== null) return this.inner.write(chunk, done)
    this.early.push(Buffer.from(chunk))
    done?.()
    return true
  }

  end(chunk?: Buffer): void {
    if (this.inner === null) this.destroy()
    else if (chunk === undefined) this.inner.end()
    else this.inner.end(chunk)
  }

  destroy(): void {
    if (this.inner !== null) this.inner.destroy()
    else {
      this.close(false)
      this.giveUp()
    }
  }

  /** The driver signals only by this that it has given up a connection that is not open yet. */
  override removeListener(name: string, listener: Parameters<EventEmitter['removeListener']>[1]): this {
    super.removeListener(name, listener)
    if (name === 'connect' && this.readyState === 'opening') queueMicrotask(() => this.destroy())
    return this
  }

  setKeepAlive(isOn: boolean, delayMs: number): void {
    this.inner?.setKeepAlive(isOn, delayMs)
  }

  pause(): void {
    this.inner?.pause()
  }

  resume(): void {
    this.inner?.resume()
  }

  private async dial(): Promise<void> {
    const { hosts } = this.url
    const { passedOver } = this.state
    const takesAny = passedOver >= hosts.length - 1
    let failure = await this.dialSome(Math.max(1, hosts.length - passedOver), { takesAny })
    // A read-only host is better than none: it can verify known keys.
    if (failure !== null && passedOver > 0) failure = await this.dialSome(hosts.length, { takesAny: true })
    if (failure === null) return
    this.state.passedOver = 0
    this.emit('error', failure)
    this.close(true)
  }

  /** @returns null when one is connected or no longer wanted; otherwise the error of the last host. */
  private async dialSome(count: number, options: { takesAny: boolean }): Promise<unknown> {
    const { hosts, tls, connectTimeoutSeconds } = this.url
    let failure: unknown = null
    for (let tried = 0; tried < count; tried++) {
      this.at = this.state.at
      const place = hosts[this.at % hosts.length] ?? { host: 'localhost', port: 5432 }
      this.host = place.host
      this.port = place.port
      try {
        const index = this.at % hosts.length
        this.isTurned = this.state.turned.has(index)
        const socket = await open(place, this.wayOf(tls), 1000 * connectTimeoutSeconds, (giveUp) => {
          this.giveUp = giveUp
        })
        if (this.readyState === 'closed') socket.destroy()
        else this.use(socket, options)
        return null
      } catch (cause) {
        failure = cause
        this.goOn()
      }
      if (this.readyState === 'closed') return null
    }
    return failure
  }

  private use(socket: Socket, { takesAny }: { takesAny: boolean }): void {
    this.inner = socket
    this.readyState = 'open'
    if (takesAny) this.state.passedOver = 0
    const { mode } = this.url.tls
    const hasTwoWays = (mode === 'allow' || mode === 'prefer') && !this.host.startsWith('/')
    if (!takesAny || hasTwoWays) this.startup = new Startup({ ...this.url, takesAny, hasTwoWays })
    socket.on('data', (bytes: Buffer) => this.receive(bytes))
    socket.on('drain', () => this.emit('drain'))
    socket.on('error', (cause) => this.emit('error', cause))
    socket.on('close', (hadError) => this.close(hadError))
    for (const chunk of this.early) socket.write(chunk)
    this.early = []
  }

  private receive(bytes: Buffer): void {
    let verdict = this.startup?.read(bytes) ?? 'taken'
    if (verdict === 'refused') verdict = this.turn() ? 'turned' : 'taken'
    if (verdict === 'next' || verdict === 'turned') {
      // When a connection closes before it was ready, without an error, the driver connects again.
      if (verdict === 'next' && this.goOn()) this.state.passedOver++
      this.inner?.removeAllListeners()
      this.inner?.on('error', () => {}) // no longer used
      this.inner?.destroy()
      this.close(false)
      return
    }
    if (verdict === 'taken' && this.startup !== null) {
      this.startup = null
      this.state.passedOver = 0
    }
    this.emit('data', bytes)
  }

  /** The way to ask for TLS in this attempt. */
  private wayOf(tls: Tls): Tls {
    if (tls.mode !== 'allow' && tls.mode !== 'prefer') return tls
    const isPlain = (tls.mode === 'allow') !== this.isTurned
    // A second attempt of `allow` takes nothing but TLS, as it was refused without.
    return { ...tls, mode: isPlain ? 'disable' : tls.mode === 'allow' ? 'require' : 'prefer' }
  }

  /** Notes that the host wants the other way. @returns false when it has refused both: its error is shown. */
  private turn(): boolean {
    const index = this.at % this.url.hosts.length
    if (this.isTurned) this.state.turned.delete(index)
    else this.state.turned.add(index)
    return !this.isTurned
  }

  /** Moves to the next host, unless another connection already did. @returns whether this call moved. */
  private goOn(): boolean {
    if (this.state.at !== this.at) return false
    this.state.at++
    return true
  }

  private close(hadError: boolean): void {
    if (this.readyState === 'closed') return
    this.readyState = 'closed'
    this.emit('close', hadError)
  }
}

/** Reads the server's messages before its first ReadyForQuery. */
class Startup {
  private held: Buffer = Buffer.alloc(0)
  constructor(
    private readonly options: Pick<DatabaseUrl, 'wantsWritable'> & { takesAny: boolean; hasTwoWays: boolean },
  ) {}

  /** @returns whether to use the host, to try the next, to try the other way, or to read on. */
  read(bytes: Buffer): 'taken' | 'next' | 'refused' | 'turned' | 'unknown' {
    const { wantsWritable, takesAny, hasTwoWays } = this.options
    this.held = Buffer.concat([this.held, bytes])
    while (this.held.length >= 5) {
      const size = 1 + this.held.readUInt32BE(1)
      if (this.held.length < size) return 'unknown'
      const type = String.fromCharCode(this.held[0] ?? 0)
      const body = this.held.toString('utf8', 5, size)
      this.held = this.held.subarray(size)
      if (type === 'Z') return 'taken'
      // Code 57P03: the server is starting or stopping. 28000: no rule lets this client in, with TLS or without (08P01 of
      // poolers). Other errors concern the client and would be the same on every host.
      if (type === 'E' && !takesAny && body.includes('C57P03\0')) return 'next'
      if (type === 'E') return hasTwoWays && /C(28000|08P01)\0/.test(body) ? 'refused' : 'taken'
      const isReadOnly = /^(in_hot_standby|default_transaction_read_only)\0on\0/.test(body)
      if (type === 'S' && isReadOnly && wantsWritable && !takesAny) return 'next'
    }
    return 'unknown'
  }
}

/** @throws Error when the connection does not open in time, or is given up meanwhile. */
async function open(
  at: { host: string; port: number },
  tls: Tls,
  timeoutMs: number,
  onBegun: (giveUp: () => void) => void,
): Promise<Socket> {
  const isUnix = at.host.startsWith('/')
  const socket = new Socket()
  let current = socket
  const unwanted = Promise.withResolvers<never>()
  onBegun(() => unwanted.reject(failureOf('CONNECTION_DESTROYED', 'nobody wants it any more')))
  const late = () => {
    throw failureOf('CONNECT_TIMEOUT', `no answer from ${at.host}:${at.port}`)
  }
  const opening = async () => {
    await event(socket, 'connect', () => {
      if (isUnix) socket.connect(join(at.host, `.s.PGSQL.${at.port}`))
      else socket.connect(at.port, at.host)
    })
    if (tls.mode === 'disable' || isUnix) return socket
    if (!tls.isDirect && !(await hasTls(socket))) {
      if (tls.mode === 'prefer') return socket
      throw failureOf('NO_TLS', 'the server has no TLS')
    }
    socket.removeAllListeners()
    current = connectTls({ ...tlsOptions(tls, at.host), socket })
    await event(current, 'secureConnect').catch((cause: unknown) => {
      throw tls.mode === 'prefer' ? new TlsFailed('TLS failed', { cause }) : cause
    })
    return current
  }
  try {
    const either = Promise.race([opening(), unwanted.promise])
    const opened = await within(systemTimers, timeoutMs, either, { late })
    opened.removeAllListeners()
    return opened
  } catch (cause) {
    for (const each of [socket, current]) {
      each.removeAllListeners()
      each.on('error', () => {}) // the error is already reported
      each.destroy()
    }
    if (cause instanceof TlsFailed) return await open(at, { ...tls, mode: 'disable' }, timeoutMs, onBegun)
    throw cause
  }
}

/** The server has TLS, but not the wanted one, where none is as good. */
class TlsFailed extends Error {}

/** Sends Postgres' SSLRequest, eight bytes. The answer is one byte. */
async function hasTls(socket: Socket): Promise<boolean> {
  const request = Buffer.alloc(8)
  request.writeUInt32BE(8, 0)
  request.writeUInt32BE(80877103, 4)
  const answer = await event<Buffer>(socket, 'data', () => socket.write(request))
  // More bytes were injected by a man in the middle, to be taken for encrypted ones.
  if (answer.length === 1 && answer[0] === 0x53) return true
  if (answer.length === 1 && answer[0] === 0x4e) return false
  throw failureOf('NO_TLS', 'the server does not know the question for TLS')
}

function tlsOptions(tls: Tls, host: string): ConnectionOptions {
  // As in libpq: with a root certificate every mode verifies.
  const verifies = tls.mode === 'verify-ca' || tls.mode === 'verify-full' || tls.rootFile !== null
  const compares = tls.mode === 'verify-full'
  return {
    ...(isIP(host) === 0 ? { servername: host } : {}),
    rejectUnauthorized: verifies,
    checkServerIdentity: (_: string, certificate: PeerCertificate) =>
      compares ? checkServerIdentity(host, certificate) : undefined,
    ...(tls.rootFile === null ? {} : { ca: readPem(tls.rootFile, 'sslrootcert') }),
    ...(tls.certFile === null ? {} : { cert: readPem(tls.certFile, 'sslcert') }),
    ...(tls.keyFile === null ? {} : { key: readPem(tls.keyFile, 'sslkey') }),
    ...(tls.keyPassword === null ? {} : { passphrase: tls.keyPassword }),
    ...(tls.minVersion === null ? {} : { minVersion: tls.minVersion }),
    ...(tls.isDirect ? { ALPNProtocols: ['postgresql'] } : {}),
  }
}

function readPem(path: string, name: string): Buffer {
  try {
    return readFileSync(path)
  } catch (cause) {
    throw failureOf('NO_FILE', `the file ${path} (${name}) cannot be read`, cause)
  }
}

/** Waits for one event. @returns its argument. @throws the socket's error, or Error when the connection closes instead. */
function event<T = void>(socket: Socket, name: string, begin = () => {}): Promise<T> {
  return new Promise((resolve, reject) => {
    socket.once(name, resolve)
    socket.once('error', reject)
    socket.once('close', () => reject(failureOf('CONNECTION_CLOSED', 'the server closed the connection')))
    begin()
  })
}

const failureOf = (code: string, message: string, cause?: unknown) =>
  Object.assign(new Error(message, { cause }), { code })
