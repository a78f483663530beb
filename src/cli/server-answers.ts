import type { Arguments } from './arguments.ts'
import type { AskServersReply } from './replies.ts'
import { tableText } from './text.ts'

/** Prints what each server answers about a key. @returns 1 when they do not all answer the same. */
export async function printAnswers(given: Arguments, method: string, body: object): Promise<number> {
  const client = await given.client()
  const reply = await client.post<AskServersReply>(method, body)
  const rows = reply.servers.map(({ id, host = '', isThis, code = 'no answer', afterMs = '' }) => [
    id,
    host,
    code,
    isThis ? 'asked first' : afterMs,
  ])
  given.print(tableText(['server', 'host', 'answers', 'ms'], rows), reply.servers)
  const codes = new Set(reply.servers.map(({ code }) => code))
  return codes.size === 1 && !codes.has(undefined) ? 0 : 1
}
