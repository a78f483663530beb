import { expect, test } from 'bun:test'
import type { Answer } from '../../../src/doors/http/answer.ts'
import type { Envelope } from '../../../src/doors/http/dialect.ts'
import { ResponseEncoder } from '../../../src/doors/http/response-encoder.ts'
import { newRequestId } from '../../../src/lib/ids.ts'
import { randomNumbers } from '../../support/random.ts'

const answerOf = (status: number, text: string, tookMs: number, more: Partial<Envelope> = {}): Answer => ({
  status,
  contentType: 'application/json',
  text,
  tookMs,
  envelope: {
    requestId: newRequestId(),
    startedAt: performance.now() - tookMs,
    addedHeaders: null,
    isCrossOrigin: false,
    path: '/v1/liveness',
    accept: null,
    isApi: true,
    isPretty: false,
    publicUrl: '',
    trace: null,
    ...more,
  },
})

/** Reads status line, headers (names in lower case) and body of a message. */
function parse(message: string) {
  const end = message.indexOf('\r\n\r\n')
  const [status = '', ...lines] = message.slice(0, end).split('\r\n')
  const headers = lines.map((line) => {
    const colon = line.indexOf(': ')
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 2)] as const
  })
  expect(new Set(headers.map(([name]) => name)).size).toBe(headers.length)
  return { status, headers: Object.fromEntries(headers), body: message.slice(end + 4) }
}

function written(writer: ResponseEncoder, answer: Answer, isLast = false) {
  const length = writer.write(answer, isLast)
  return parse(writer.bytes.toString('utf8', 0, length))
}

test('an answer is complete and contains nothing else, whatever was written before it', () => {
  const writer = new ResponseEncoder()
  const random = randomNumbers(1)
  const texts = ['{}', '{"name":"日本語 é"}', JSON.stringify('x'.repeat(5_000)), `"${'é'.repeat(30_000)}"`]
  for (let i = 0; i < 2_000; i++) {
    const text = texts[Math.floor(random() * (i % 50 === 0 ? 4 : 3))] ?? ''
    const status = random() < 0.8 ? 200 : 429
    const hundredths = Math.floor(10 ** (6 * random()))
    const headers: Record<string, string> = random() < 0.2 ? { RateLimit: 'a;r=1', 'X-Two': '' } : {}
    const isCrossOrigin = random() < 0.1
    const isLast = random() < 0.1
    const requestId = random() < 0.9 ? newRequestId() : 'req_x'
    const answer = answerOf(status, text, hundredths / 100, {
      requestId,
      addedHeaders: headers,
      isCrossOrigin,
    })
    const { status: line, headers: sent, body } = written(writer, answer, isLast)
    expect(line).toBe(status === 200 ? 'HTTP/1.1 200 OK' : 'HTTP/1.1 429 Too Many Requests')
    expect(body).toBe(text)
    expect(sent['content-length']).toBe(String(Buffer.byteLength(text)))
    expect(sent['content-type']).toBe('application/json')
    expect(sent['unkey-request-id']).toBe(requestId)
    expect(sent['unkey-latency']).toBe(`service=${(hundredths / 100).toFixed(2)}ms`)
    expect(Math.abs(Date.parse(sent.date ?? '') - Date.now())).toBeLessThan(10_000)
    expect(sent.ratelimit).toBe(headers.RateLimit)
    expect(sent['x-two']).toBe(headers['X-Two'])
    expect(sent.connection).toBe(isLast ? 'close' : undefined)
    expect(sent['access-control-expose-headers'] !== undefined).toBe(isCrossOrigin)
  }
})

test('an answer larger than the buffer gets a larger buffer, and is written again from its beginning', () => {
  const writer = new ResponseEncoder()
  for (const length of [2, 20_000, 60_000, 2, 500_000]) {
    const text = 'x'.repeat(length)
    const { status, body } = written(writer, answerOf(200, text, 1))
    expect(status).toBe('HTTP/1.1 200 OK')
    expect(body === text).toBe(true)
  }
})

test('a header that would not be one line is refused, and the next answer is complete', () => {
  const writer = new ResponseEncoder()
  for (const value of ['a\r\nb: c', 'é', '\0'])
    expect(() => writer.write(answerOf(200, '{}', 1, { addedHeaders: { Odd: value } }), false)).toThrow('Odd')
  const { headers, body } = written(writer, answerOf(200, '{}', 1, { addedHeaders: { Odd: 'a\tb' } }))
  expect(headers.odd).toBe('a\tb')
  expect(body).toBe('{}')
})
