import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../src/cli/run.ts'

export type Outcome = { out: string; err: string; code: number }

/**
 * The command line in this process, as a person types it: no process has to start for it.
 * @param options.env The whole environment; without a data dir it is an empty one.
 * @param options.stdin What is piped in.
 * @param options.answer What a person says when asked; without it nobody can be.
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
