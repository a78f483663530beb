import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ClientConfig } from '../config.ts'

/** The server refused a call, or did not answer. The message is for people. */
export class CallError extends Error {
  override name = 'CallError'
  /** HTTP status; null = there was no answer. */
  readonly status: number | null
  readonly code: string | null
  /** The request's id in the server's log; null = there was no answer. */
  readonly requestId: string | null
  /** What to do about it; null = the general hint for the error code. */
  readonly hint: string | null

  constructor(
    message: string,
    facts: { status?: number; code?: string | null; requestId?: string | null; hint?: string | null } = {},
  ) {
    super(message)
    this.status = facts.status ?? null
    this.code = facts.code ?? null
    this.requestId = facts.requestId ?? null
    this.hint = facts.hint ?? null
  }
}

type Query = Record<string, string | number | boolean | readonly string[] | undefined>

/** Calls a running server. */
export class Client {
  readonly config: ClientConfig
  /** Null = there is none. */
  readonly #rootKey: { text: string; from: string } | null
  /** True after the first answer. A server that stops answering later is then expected back. */
  hasAnswered = false

  /** @param options.rootKey Content of `--root-key-file`, which takes precedence over other root keys. */
  constructor(config: ClientConfig, options: { rootKey: string | null } = { rootKey: null }) {
    this.config = config
    if (options.rootKey !== null) this.#rootKey = { text: options.rootKey, from: '--root-key-file' }
    else if (config.rootKey !== null) this.#rootKey = { text: config.rootKey, from: 'TOLLGATE_ROOT_KEY' }
    else this.#rootKey = config.isHere && config.dataDir !== null ? generatedRootKey(config.dataDir) : null
  }

  /** @throws CallError */
  post<T>(method: string, body: unknown): Promise<T> {
    return this.#call(method, { method: 'POST', body: JSON.stringify(body) })
  }

  /** @throws CallError */
  get<T>(method: string, query: Query = {}, { timeoutMs = TIMEOUT_MS } = {}): Promise<T> {
    const search = new URLSearchParams()
    for (const [name, value] of Object.entries(query))
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== undefined) search.append(name, String(one))
    return this.#call(`${method}?${search}`, { method: 'GET' }, timeoutMs)
  }

  /**
   * All items of a paged list, from as many pages as needed.
   * @param max Largest number of items.
   * @throws CallError
   */
  async list<T>(
    method: string,
    field: string,
    query: Query = {},
    max = Number.POSITIVE_INFINITY,
  ): Promise<T[]> {
    const items: T[] = []
    let cursor: string | undefined
    do {
      const limit = Math.min(ITEMS_PER_PAGE, max - items.length)
      const page: Record<string, T[]> & { cursor?: string } = await this.get(method, {
        ...query,
        limit,
        cursor,
      })
      items.push(...(page[field] ?? []))
      cursor = page.cursor
    } while (cursor !== undefined && items.length < max)
    return items
  }

  async #call<T>(path: string, init: { method: string; body?: string }, timeoutMs = TIMEOUT_MS): Promise<T> {
    const { url, isHere, socketPath } = this.config
    const headers: Record<string, string> = { 'Content-Type': 'application/json' }
    if (this.#rootKey !== null) headers.Authorization = `Bearer ${this.#rootKey.text}`
    let status: number
    let body: { error?: { code?: string; message?: string; requestId?: string } }
    try {
      const response = await fetch(`${url}/v1/${path}`, {
        ...init,
        headers,
        signal: AbortSignal.timeout(timeoutMs),
        ...(isHere ? { proxy: false as const } : {}),
        ...(socketPath === null ? {} : { unix: socketPath }),
      })
      status = response.status
      this.hasAnswered = true
      body = (await response.json()) as typeof body // every answer of the server is an object or a list
    } catch (cause) {
      throw this.#noAnswer(cause, { isChange: init.method === 'POST', timeoutMs })
    }
    if (status < 300) return body as T // the method's reply, as /openapi.json describes it
    const { code = null, message = 'no error message in the response', requestId = null } = body?.error ?? {}
    const hint = code === 'UNAUTHORIZED' ? this.#rootKeyHint() : null
    throw new CallError(`${status} ${code ?? 'no code'}: ${message}`, { status, code, requestId, hint })
  }

  #rootKeyHint(): string {
    if (this.#rootKey === null)
      return 'no root key was sent; set TOLLGATE_ROOT_KEY or give --root-key-file <path>'
    return `the root key came from ${this.#rootKey.from}; check that it belongs to this server and has the permission for this call`
  }

  #noAnswer(cause: unknown, options: { isChange: boolean; timeoutMs: number }): CallError {
    const { url, from, socketPath } = this.config
    const where = socketPath === null ? withoutPassword(url) : socketPath
    const { reason, hint } = reasonOf(cause, options)
    return new CallError(`${where} (${from}) does not answer: ${reason}`, { hint })
  }
}

/** Largest page that the server gives. */
const ITEMS_PER_PAGE = 100
const TIMEOUT_MS = 30_000

function withoutPassword(text: string): string {
  const url = new URL(text)
  if (url.username === '' && url.password === '') return text
  url.username = url.password = ''
  return url.href.replace(/\/$/, '')
}

type Reason = { reason: string; hint: string }

/** Why there was no answer, without the runtime's hints for its own users. */
function reasonOf(cause: unknown, { isChange, timeoutMs }: { isChange: boolean; timeoutMs: number }): Reason {
  if (cause instanceof SyntaxError) return NOT_TOLLGATE
  const [name, code] =
    cause instanceof Error ? [cause.name, 'code' in cause ? String(cause.code) : ''] : ['', '']
  if (name === 'TimeoutError')
    return {
      reason: `no answer within ${timeoutMs < 2000 ? `${timeoutMs} ms` : `${timeoutMs / 1000} seconds`}`,
      hint: isChange
        ? 'the change may still have happened: check before you repeat it'
        : 'try again; if it persists, check the load of the server and the firewalls in between',
    }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return {
      reason: 'its certificate is for another host name',
      hint: 'call the server by the host name in its certificate',
    }
  if (/CERT|SIGNATURE|TLS_/.test(code))
    return {
      reason: `its certificate is not trusted here (${code})`,
      hint: 'set NODE_EXTRA_CA_CERTS to a file with the certificate of its authority, or correct the address',
    }
  return (
    REASONS[code] ?? { reason: `the connection failed${code === '' ? '' : ` (${code})`}`, hint: ADDRESS_HINT }
  )
}

const ADDRESS_HINT = 'set the server with --url or TOLLGATE_URL'
const NOT_TOLLGATE: Reason = { reason: 'the program that answers is not Tollgate', hint: ADDRESS_HINT }
const REASONS: Record<string, Reason> = {
  ECONNREFUSED: {
    reason: 'nothing listens there',
    hint: `start a server with "tollgate serve", or ${ADDRESS_HINT}`,
  },
  ENOENT: {
    reason: 'the socket does not exist',
    hint: 'start a server with this TOLLGATE_SOCKET, or correct the path',
  },
  ENOTFOUND: { reason: 'the host name cannot be resolved', hint: ADDRESS_HINT },
  ECONNRESET: {
    reason: 'the connection was closed without an answer',
    hint: 'check that the address is a Tollgate server, and try https:// instead of http:// or the other way round',
  },
  EPROTO: { reason: 'the server does not use TLS', hint: 'try http:// instead of https://' },
  ERR_INVALID_URL: { reason: 'this is not a valid URL', hint: ADDRESS_HINT },
}

/**
 * The root key that the first start of a server on this machine wrote, so that a first try needs no variable. It is sent to
 * no other machine.
 */
function generatedRootKey(dataDir: string): { text: string; from: string } | null {
  const path = join(dataDir, 'root-key')
  try {
    return { text: readFileSync(path, 'utf8').trim(), from: path }
  } catch {
    return null
  }
}
