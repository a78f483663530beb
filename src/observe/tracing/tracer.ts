import { newTraceHex, readTraceContext } from '../trace-context.ts'
import { type ExporterOptions, SpanExporter, type SpanStats } from './exporter.ts'

/** The place of one request in its trace. */
export type Trace = {
  /** 32 hex digits. */
  traceId: string
  /** Id of this server's span, 16 hex digits. */
  spanId: string
  /** Id of the caller's span; null = the trace starts here. */
  parentId: string | null
  /** Whether the spans of this request are exported. */
  isSampled: boolean
  /** `tracestate` unchanged; null = none. */
  state: string | null
}

/** OTLP's numbers. */
export const SPAN_KIND = { internal: 1, server: 2, client: 3 } as const

export type Span = {
  trace: Pick<Trace, 'traceId' | 'state'>
  spanId: string
  parentId: string | null
  name: string
  kind: (typeof SPAN_KIND)[keyof typeof SPAN_KIND]
  /** `performance.now()` at its start. The span ends at the call of `end`. */
  startedAt: number
  attributes: Readonly<Record<string, string | number | null>>
  /** The server or one of its parts failed. */
  isError: boolean
}

/** Which traces are exported: as the caller decided if `heedsParent`, otherwise this `ratio` of them. */
export type Sampler = { heedsParent: boolean; ratio: number }

/** Makes and exports the spans of one thread. */
export class Tracer {
  readonly #exporter: SpanExporter
  readonly #sampler: Sampler
  /** Unix ms at `performance.now()` 0. Recomputed from time to time, as only the machine's clock follows corrections. */
  #epochMs = 0
  #epochUntil = 0

  constructor(options: ExporterOptions & { sampler: Sampler }) {
    this.#exporter = new SpanExporter(options)
    this.#sampler = options.sampler
  }

  /** Joins the caller's trace, or starts one. */
  begin(traceparent: string | null, tracestate: string | null): Trace {
    const context = readTraceContext(traceparent, tracestate)
    const traceId = context?.traceId ?? newTraceHex(32)
    return {
      traceId,
      spanId: newTraceHex(16),
      parentId: context?.parentId ?? null,
      isSampled:
        context !== null && this.#sampler.heedsParent
          ? context.isSampled
          : isWithin(traceId, this.#sampler.ratio),
      state: context?.state ?? null,
    }
  }

  /** Ends a span now and queues it for export. */
  end({ trace, spanId, parentId, name, kind, startedAt, attributes, isError }: Span): void {
    const endedAt = performance.now()
    let fields = ''
    for (const key in attributes) {
      const value = attributes[key]
      if (value === null || value === undefined) continue
      const typed =
        typeof value === 'number' ? `"intValue":"${value}"` : `"stringValue":${JSON.stringify(value)}`
      fields += `${fields === '' ? '' : ','}{"key":"${key}","value":{${typed}}}`
    }
    const parent = parentId === null ? '' : `"parentSpanId":"${parentId}",`
    const state = trace.state === null ? '' : `"traceState":${JSON.stringify(trace.state)},`
    this.#exporter.add(
      `{"traceId":"${trace.traceId}","spanId":"${spanId}",${parent}${state}"flags":1,"name":${JSON.stringify(name)},"kind":${kind},"startTimeUnixNano":"${this.#nanosAt(startedAt)}","endTimeUnixNano":"${this.#nanosAt(endedAt)}","attributes":[${fields}],"status":${isError ? '{"code":2}' : '{}'}}`,
    )
  }

  stats(): SpanStats {
    return this.#exporter.stats()
  }

  flush(): Promise<void> {
    return this.#exporter.flush()
  }

  stop(): Promise<void> {
    return this.#exporter.stop()
  }

  /** Unix nanoseconds as text: a number does not have enough digits. */
  #nanosAt(at: number): string {
    if (at > this.#epochUntil) {
      this.#epochMs = Date.now() - performance.now()
      this.#epochUntil = at + EPOCH_MS
    }
    const ms = this.#epochMs + at
    const whole = Math.floor(ms)
    return `${whole}${String(Math.floor((ms - whole) * 1e6)).padStart(6, '0')}`
  }
}

const EPOCH_MS = 10_000

/** Decided by the random end of the trace's id, so that all services decide alike. */
const isWithin = (traceId: string, ratio: number): boolean =>
  Number.parseInt(traceId.slice(-13), 16) >= (1 - ratio) * 2 ** 52
