import type { Environment } from '../config.ts'

/** Input and output of a command. Tests pass their own, so that they need no process. */
export type Terminal = {
  /** Writes results. */
  out(text: string): void
  /** Writes errors and notes for people. */
  err(text: string): void
  /** All input on stdin. */
  readStdin(): Promise<string>
  /** A person's answer; null = nobody can be asked. */
  ask(question: string): string | null
  /** From now on a closed stdout is not an error, as when `head` has read enough. */
  allowClosedReader(): void
  /** Undefined = the environment of the process. */
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
