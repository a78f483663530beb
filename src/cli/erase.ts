import { type Arguments, UsageError } from './arguments.ts'
import { Client } from './client.ts'

/**
 * Asks first, then erases, and waits until nothing is left: a call ends before that where there is much to rewrite.
 * @returns the exit status: 1 when the answer was no.
 */
export async function erase(
  given: Arguments,
  { what, method, body }: { what: string; method: string; body: object },
): Promise<number> {
  if (!given.has('yes') && !confirmed(`Erase ${what}? This cannot be undone. [y/N]`)) {
    process.stderr.write('nothing was erased\n')
    return 1
  }
  const client = new Client()
  let reply: { pseudonym: string; complete: boolean }
  do reply = await client.post(method, body)
  while (!reply.complete)
  given.print(`erased; known as ${reply.pseudonym} from now on`, reply)
  return 0
}

/** @throws UsageError where nobody can be asked. */
function confirmed(question: string): boolean {
  if (process.stdin.isTTY !== true) throw new UsageError('--yes is required where nobody can be asked')
  return /^y(es)?$/i.test(prompt(question)?.trim() ?? '')
}
