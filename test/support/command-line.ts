import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../src/cli/run.ts'

export type Outcome = { out: string; err: string; code: number }

/**
 * Runs a command line in this process, which saves starting one.
 * @param options.env The whole environment. Without a data directory in it, an empty one is used.
 * @param options.stdin Input.
 * @param options.answer Answer to a question. Without it nobody can be asked.
 */
export async function runHere(
  words: readonly string[],
  options: { env?: Record<string, string>; stdin?: string; answer?: string } = {},
): Promise<Outcome> {
  const { env = {}, stdin = '', answer = null } = options
  const outcome = { out: '', err: '' }
  const code = await run(words, {
    out: (text) => {
      outcome.out += text
    },
    err: (text) => {
      outcome.err += text
    },
    readStdin: () => Promise.resolve(stdin),
    ask: () => answer,
    allowClosedReader: () => {},
    environment: { TOLLGATE_DATA_DIR: join(tmpdir(), 'tollgate-test-no-data-dir'), ...env },
  })
  return { ...outcome, code }
}
