import type { Environment } from '../config.ts'

/** What a command reads and writes. A test gives its own, so that it need not start a process. */
export type Terminal = {
  /** Of what was asked for. */
  out(text: string): void
  /** Of what went wrong, and what else a person should know. */
  err(text: string): void
  /** All that is piped in. */
  readStdin(): Promise<string>
  /** What a person answers; null = nobody can be asked. */
  ask(question: string): string | null
  /** From now on a reader who has seen enough, such as `head`, is no failure. */
  allowClosedReader(): void
  /** Undefined = that of this process. */
  environment: Environment | undefined
}

export const systemTerminal: Terminal = {
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  readStdin: () => Bun.stdin.text(),
  ask: (question) => (process.stdin.isTTY === true ? (prompt(question) ?? '') : null),
  allowClosedReader: () =>
    void process.stdout.on('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code === 'EPIPE') process.exit(0)
    }),
  environment: undefined,
}
