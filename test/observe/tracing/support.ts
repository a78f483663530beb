import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

/** OTLP in JSON by its specification: ids in hex, 64-bit numbers as text, and no other fields. */
const strict = { additionalProperties: false }
const Nanos = Type.String({ pattern: '^[1-9][0-9]{18}$' })
const AnyValue = Type.Union([
  Type.Object({ stringValue: Type.String() }, strict),
  Type.Object({ intValue: Type.String({ pattern: '^-?[0-9]+$' }) }, strict),
])
const Attributes = Type.Array(Type.Object({ key: Type.String({ minLength: 1 }), value: AnyValue }, strict))
const Span = Type.Object(
  {
    traceId: Type.String({ pattern: '^[0-9a-f]{32}$' }),
    spanId: Type.String({ pattern: '^[0-9a-f]{16}$' }),
    parentSpanId: Type.Optional(Type.String({ pattern: '^[0-9a-f]{16}$' })),
    traceState: Type.Optional(Type.String()),
    flags: Type.Integer(),
    name: Type.String({ minLength: 1 }),
    kind: Type.Integer({ minimum: 1, maximum: 5 }),
    startTimeUnixNano: Nanos,
    endTimeUnixNano: Nanos,
    attributes: Attributes,
    status: Type.Object({ code: Type.Optional(Type.Integer({ minimum: 0, maximum: 2 })) }, strict),
  },
  strict,
)
const Export = Type.Object(
  {
    resourceSpans: Type.Array(
      Type.Object(
        {
          resource: Type.Object({ attributes: Attributes }, strict),
          scopeSpans: Type.Array(
            Type.Object(
              {
                scope: Type.Object({ name: Type.String(), version: Type.String() }, strict),
                spans: Type.Array(Span),
              },
              strict,
            ),
          ),
        },
        strict,
      ),
    ),
  },
  strict,
)
type SpanOnWire = Static<typeof Span>
export type ReceivedSpan = Omit<SpanOnWire, 'attributes'> & { attributes: Record<string, string> }

export type Collector = AsyncDisposable & {
  url: string
  /** In the order of arrival. */
  spans: ReceivedSpan[]
  requests: { path: string; headers: Headers; resource: Record<string, string> }[]
  /** Answers to the next requests; afterwards 200. */
  answers: (() => Response)[]
}

/** Accepts OTLP over HTTP. Invalid requests get a 400, which fails the test. */
export function startCollector(): Collector {
  const spans: ReceivedSpan[] = []
  const requests: Collector['requests'] = []
  const answers: Collector['answers'] = []
  const textOf = (attributes: Static<typeof Attributes>) =>
    Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0] ?? '']))
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async (request) => {
      const { headers } = request
      const body: unknown = await request.json()
      const [problem] = Value.Errors(Export, body)
      if (problem !== undefined || headers.get('content-type') !== 'application/json')
        throw new Error(`no OTLP: ${JSON.stringify(problem)}`)
      const answer = answers.shift()?.() ?? Response.json({})
      for (const { resource, scopeSpans } of Value.Parse(Export, body).resourceSpans) {
        const path = new URL(request.url).pathname
        requests.push({ path, headers, resource: textOf(resource.attributes) })
        if (answer.ok)
          for (const scope of scopeSpans)
            for (const span of scope.spans) spans.push({ ...span, attributes: textOf(span.attributes) })
      }
      return answer
    },
  })
  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    requests,
    answers,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
}
