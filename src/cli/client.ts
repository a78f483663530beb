import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ClientConfig, readClientConfig } from '../config.ts'

/** The server refused, or could not be asked. Its message is for the person at the terminal. */
export class CallError extends Error {
  override name = 'CallError'
  constructor(
    message: string,
    /** HTTP status; null = no answer came. */
    readonly status: number | null,
    readonly code: string | null,
  ) {
    super(message)
  }
}

/** The root key of `--root-key-file`, for all calls of this run; null = none was given. */
let givenRootKey: string | null = null
export function useRootKey(text: string): void {
  givenRootKey = text
}

/** Calls a running server as `TOLLGATE_URL` and `TOLLGATE_ROOT_KEY` say. */
export class Client {
  readonly config: ClientConfig
  readonly #rootKey: string | null
  /** Whether any answer came so far: one that is away then is expected back. */
  hasAnswered = false

  constructor(config: ClientConfig = readClientConfig()) {
    this.config = config
    this.#rootKey =
      givenRootKey ?? config.rootKey ?? (config.isHere ? generatedRootKey(config.dataDir) : null)
  }

  /** @throws CallError */
  post<T>(method: string, body: unknown): Promise<T> {
    return this.#call(method, { method: 'POST', body: JSON.stringify(body) })
  }

  /** @throws CallError */
  get<T>(
    method: string,
    query: Record<string, string | number | readonly string[] | undefined> = {},
  ): Promise<T> {
    const search = new URLSearchParams()
    for (const [name, value] of Object.entries(query))
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== undefined) search.append(name, String(one))
    return this.#call(`${method}?${search}`, { method: 'GET' })
  }

  /** All items of a paged list. @throws CallError */
  async list<T>(method: string, field: string, query: Record<string, string | undefined> = {}): Promise<T[]> {
    const items: T[] = []
    let cursor: string | undefined
    do {
      const page: Record<string, T[]> & { cursor?: string } = await this.get(method, {
        ...query,
        limit: 100,
        cursor,
      })
      items.push(...(page[field] ?? []))
      cursor = page.cursor
    } while (cursor !== undefined)
    return items
  }

  async #call<T>(path: string, init: { method: string; body?: string }): Promise<T> {
    const { url, isHere, socketPath } = this.config
    const headers: Record<string, string> = { 'Content-Type': 'application/json' }
    if (this.#rootKey !== null) headers.Authorization = `Bearer ${this.#rootKey}`
    let status: number
    let body: { error?: { code?: string; message?: string } }
    try {
      const response = await fetch(`${url}/v1/${path}`, {
        ...init,
        headers,
        signal: AbortSignal.timeout(TIMEOUT_MS),
        ...(isHere ? { proxy: false as const } : {}),
        ...(socketPath === null ? {} : { unix: socketPath }),
      })
      status = response.status
      this.hasAnswered = true
      body = (await response.json()) as typeof body // every answer of the server is an object or a list
    } catch (cause) {
      const where = socketPath === null ? `${url} (TOLLGATE_URL)` : `${socketPath} (TOLLGATE_SOCKET)`
      throw new CallError(`${where} does not answer: ${reasonOf(cause)}`, null, null)
    }
    if (status < 300) return body as T // the reply of the method, as /openapi.json describes it
    const { code = null, message = 'no reason given' } = body.error ?? {}
    const hint =
      code === 'UNAUTHORIZED' && this.#rootKey === null
        ? '; set TOLLGATE_ROOT_KEY, or give --root-key-file'
        : ''
    throw new CallError(`${status} ${code}: ${message}${hint}`, status, code)
  }
}

const TIMEOUT_MS = 30_000

/** Why no answer came, without the runtime's advice to its own users. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  if (cause instanceof SyntaxError) return 'what answers there is not Tollgate'
  if (cause.name === 'TimeoutError') return `nothing came within ${TIMEOUT_MS / 1000} seconds`
  const code = 'code' in cause ? String(cause.code) : ''
  return REASONS[code] ?? cause.message
}

const REASONS: Record<string, string> = {
  ECONNREFUSED: 'nothing listens there; start a server with "tollgate serve", or correct the address',
  ENOENT: 'there is no such socket; start a server with TOLLGATE_SOCKET, or correct the path',
  ENOTFOUND: 'its host is not known here; correct the address',
  ECONNRESET: 'the connection was closed without an answer; is it a Tollgate, and http or https as it wants?',
}

/** What the first start of a server on this machine wrote, so that trying things out needs no variable. It is sent to no other. */
function generatedRootKey(dataDir: string): string | null {
  try {
    return readFileSync(join(dataDir, 'root-key'), 'utf8').trim()
  } catch {
    return null
  }
}
