import type { Arguments } from './arguments.ts'
import { isConfirmed } from './shared-options.ts'

/**
 * Asks for confirmation, erases, and repeats the call until the erasure is complete: with many rows one call is not enough.
 * @returns the exit status: 1 when the answer was no.
 */
export async function erase(
  given: Arguments,
  { what, method, body }: { what: string; method: string; body: object },
): Promise<number> {
  if (!isConfirmed(given, `Erase ${what}?`, 'nothing was erased')) return 1
  const client = await given.client()
  let reply: { pseudonym: string; complete: boolean }
  do reply = await client.post(method, body)
  while (!reply.complete)
  given.print(`erased; replaced by ${reply.pseudonym} in usage and audit events`, reply)
  return 0
}
