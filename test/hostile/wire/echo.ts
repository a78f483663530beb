import { connect } from 'node:net'

/** A request as a server read it. */
export type Echo = { method: string; target: string; body: string }

/** The value of `X-Echo`: method, target and body (Latin-1), each percent-encoded. */
export const echoHeader = ({ method, target, body }: Echo): string =>
  [method, target, body].map(encodeURIComponent).join(' ')

export type Outcome =
  | ({ kind: 'answered' } & Echo)
  /** `reason` is of Node's parser. */
  | { kind: 'refused'; status: number; reason: string }

/** `isHung`: neither answers nor closes, although nothing more will come. */
export type Spoken = { outcomes: Outcome[]; isHung: boolean; rest: string }

/**
 * Sends the parts, closes the sending side, and reads until the server closes.
 * @param path A Unix socket.
 */
export function speak(path: string, parts: readonly Buffer[]): Promise<Spoken> {
  return new Promise((resolve) => {
    let text = ''
    const socket = connect({ path, allowHalfOpen: true })
    const timer = setTimeout(() => finish(true), HUNG_MS)
    const finish = (isHung: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ ...readAnswers(text), isHung })
    }
    socket.setEncoding('latin1')
    socket.on('data', (chunk: string) => {
      text += chunk
    })
    socket.on('error', () => {}) // it closes too
    socket.on('end', () => finish(false))
    socket.on('close', () => finish(false))
    socket.on('connect', async () => {
      for (const [i, part] of parts.entries()) {
        if (i > 0 && i < PARTS_APART) await new Promise((sent) => setImmediate(sent))
        if (socket.destroyed) return
        socket.write(part)
      }
      socket.end()
    })
  })
}

const HUNG_MS = 20_000
/** This many parts are sent in turns of their own; when sent byte by byte, later ones may be joined. */
const PARTS_APART = 60

/** The answers in a server's bytes, without interim ones (1xx). */
function readAnswers(sent: string): { outcomes: Outcome[]; rest: string } {
  const outcomes: Outcome[] = []
  let at = 0
  for (;;) {
    const headEnd = sent.indexOf('\r\n\r\n', at)
    if (headEnd === -1) break
    const head = sent.slice(at, headEnd)
    const status = Number(/^HTTP\/1\.[01] (\d{3})( |$)/m.exec(head.split('\r\n')[0] ?? '')?.[1] ?? Number.NaN)
    if (Number.isNaN(status)) break
    const header = (name: string) => new RegExp(`^${name}: *(.*)$`, 'im').exec(head)?.[1] ?? null
    at = headEnd + 4
    if (status < 200) continue
    const echo = header('x-echo')
    const [method = '', target = '', body = ''] = (echo ?? '').split(' ').map(decodeURIComponent)
    // Node sends some refusals as chunked, with an empty body.
    if (header('transfer-encoding') !== null && sent.startsWith('0\r\n\r\n', at)) at += 5
    if (method !== 'HEAD') at += Number(header('content-length') ?? 0)
    outcomes.push(
      echo === null
        ? { kind: 'refused', status, reason: header('x-reason') ?? '' }
        : { kind: 'answered', method, target, body },
    )
  }
  return { outcomes, rest: sent.slice(at) }
}
