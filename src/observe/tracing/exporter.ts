import { Episode } from '../../episodes.ts'
import { isLoopbackUrl } from '../../lib/address.ts'
import { type Cancel, pause, systemTimers, type Timers, within } from '../../lib/timers.ts'
import { log } from '../../log.ts'

/*
 * Sends spans to a collector: OTLP over HTTP in JSON (https://opentelemetry.io/docs/specs/otlp/). One exporter a thread.
 *
 * Not OpenTelemetry's packages (sdk-trace-base 2.12, exporter-trace-otlp-http 0.301): 12 packages of 28 MB, 240 ms and 19
 * MiB a thread to load, and 6.6 µs of CPU a span against 3.1 here (Bun 1.4.5, 20 000 spans with a parent and six
 * attributes, a receiver in the same process). They do not count dropped spans. Look again when something besides spans is
 * exported.
 */

export type ExporterOptions = {
  url: string
  headers: Readonly<Record<string, string>>
  /** Longest wait for an answer of the collector, ms. */
  timeoutMs: number
  /** The sender: an OTLP `Resource` and `InstrumentationScope`, as JSON. */
  resource: string
  scope: string
  /** For tests. */
  timers?: Timers
}

/** The exporter's own figures, for metrics. */
export type SpanStats = {
  /** Accepted by the collector since the start. */
  exported: number
  /** Lost since the start: the queue was full, or the collector did not accept them. */
  dropped: number
  /** Waiting to be sent. */
  queued: number
}

/**
 * States: waiting (until a batch is full or {@link EVERY_MS} have passed) → sending → waiting. When the collector says
 * "later" or does not answer: sending → backing off → sending, at most {@link ATTEMPTS_MAX} times a batch. Meanwhile up to
 * {@link QUEUE_MAX} spans queue; further ones are dropped and counted. Requests never wait for the exporter. `stop` sends
 * the queue, within {@link STOP_MS}.
 */
export class SpanExporter {
  readonly #options: ExporterOptions
  readonly #timers: Timers
  /** An OTLP `Span` each, as JSON. Serialising spans one by one avoids a pause for a whole batch. */
  #queue: string[] = []
  #exported = 0
  #dropped = 0
  #isSending = false
  #cancelNext: Cancel | null = null
  /** Aborted by a stop, to end the pause before the next attempt. */
  readonly #stopping = new AbortController()
  #sending: Promise<void> = Promise.resolve()

  constructor(options: ExporterOptions) {
    this.#options = options
    this.#timers = options.timers ?? systemTimers
    this.#waitForMore()
  }

  /** @param span An OTLP `Span` as JSON. */
  add(span: string): void {
    if (this.#queue.length >= QUEUE_MAX) {
      this.#dropped++
      return
    }
    this.#queue.push(span)
    if (this.#queue.length === BATCH_MAX && !this.#isSending) this.#sendAll()
  }

  stats(): SpanStats {
    return { exported: this.#exported, dropped: this.#dropped, queued: this.#queue.length }
  }

  /** Sends the queue. @returns when it was accepted or given up. */
  async flush(): Promise<void> {
    await this.#sending
    this.#sendAll()
    await this.#sending
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await within(this.#timers, STOP_MS, this.flush(), { late: () => {} })
    this.#cancelNext?.()
    if (this.#queue.length > 0)
      log('warn', 'spans_lost_at_stop', 'some trace spans were not exported before the stop and are lost', {
        spans: this.#queue.length,
      })
  }

  #waitForMore(): void {
    this.#cancelNext?.()
    this.#cancelNext = this.#timers.after(EVERY_MS, () => this.#sendAll())
  }

  #sendAll(): void {
    if (this.#isSending) return
    this.#isSending = true
    this.#sending = this.#sendBatches().finally(() => {
      this.#isSending = false
      if (!this.#stopping.signal.aborted) this.#waitForMore()
    })
  }

  async #sendBatches(): Promise<void> {
    while (this.#queue.length > 0) {
      const spans = this.#queue.slice(0, BATCH_MAX)
      // Spans leave the queue only when their result is known, so that `queued` includes them.
      const rejected = await this.#sendBatch(spans)
      this.#queue = this.#queue.slice(spans.length)
      this.#exported += spans.length - rejected
      this.#dropped += rejected
    }
  }

  /** @returns how many spans the collector did not accept. */
  async #sendBatch(spans: readonly string[]): Promise<number> {
    const { resource, scope } = this.#options
    const body = `{"resourceSpans":[{"resource":${resource},"scopeSpans":[{"scope":${scope},"spans":[${spans.join()}]}]}]}`
    for (let attempt = 1; ; attempt++) {
      const { rejected, retryAfterMs, reason } = await this.#post(body)
      if (reason === null) {
        if (failing.end() !== null) log('info', 'span_export_recovered', 'trace spans are exported again')
        return rejected
      }
      if (failing.begin())
        log(
          'warn',
          'span_export_failing',
          'the collector does not accept trace spans; requests are not affected',
          { reason },
        )
      if (retryAfterMs === null || attempt >= ATTEMPTS_MAX || this.#stopping.signal.aborted)
        return spans.length
      // With jitter, so that servers that failed together do not retry together.
      const delayMs = Math.max(retryAfterMs, FIRST_RETRY_MS * 2 ** (attempt - 1) * (0.5 + Math.random()))
      await pause(this.#timers, Math.min(delayMs, RETRY_MS_MAX), this.#stopping.signal)
    }
  }

  /**
   * @returns `reason` null = the batch was accepted, apart from `rejected` spans; else why not. `retryAfterMs` null = never
   *   retry.
   */
  async #post(
    body: string,
  ): Promise<{ rejected: number; retryAfterMs: number | null; reason: string | null }> {
    const { url, headers, timeoutMs } = this.#options
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/json' },
        body,
        signal: AbortSignal.timeout(timeoutMs),
        redirect: 'manual',
        ...(isLoopbackUrl(url) ? { proxy: false as const } : {}),
      })
      const text = await response.text()
      if (response.ok) return { rejected: rejectedOf(text), retryAfterMs: null, reason: null }
      const seconds = Number(response.headers.get('retry-after') ?? 0)
      const retryAfterMs = RETRYABLE.has(response.status) ? (seconds > 0 ? 1000 * seconds : 0) : null
      return { rejected: 0, retryAfterMs, reason: `the collector answers ${response.status}` }
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause)
      return { rejected: 0, retryAfterMs: 0, reason }
    }
  }
}

/** Spans that the collector rejected from a batch that it otherwise accepted. */
function rejectedOf(text: string): number {
  try {
    const answer: unknown = JSON.parse(text)
    if (typeof answer !== 'object' || answer === null || !('partialSuccess' in answer)) return 0
    const { partialSuccess } = answer
    if (typeof partialSuccess !== 'object' || partialSuccess === null || !('rejectedSpans' in partialSuccess))
      return 0
    return Number(partialSuccess.rejectedSpans) || 0
  } catch {
    return 0 // some collectors answer with an empty or other body
  }
}

/** Shared by the exporters of all threads. */
const failing = new Episode('span export')

/** The default of OpenTelemetry's specification for batches. */
const EVERY_MS = 5000
const BATCH_MAX = 512
export const QUEUE_MAX = 2048
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504])
const ATTEMPTS_MAX = 5
const FIRST_RETRY_MS = 1000
const RETRY_MS_MAX = 30_000
const STOP_MS = 2000
