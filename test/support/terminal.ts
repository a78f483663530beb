import type { Subprocess } from 'bun'
import { ROOT } from '../docs/blocks.ts'
import { OPERATOR_KEY } from './server.ts'

/** A program on a pseudo-terminal, as a person at a keyboard uses it. */
export type OnTerminal = AsyncDisposable & {
  process: Subprocess
  /** Everything shown so far, without colours. */
  output(): string
  /** Waits for a text. @throws Error with the output, when the program ends or the text does not appear in time. */
  shown(pattern: RegExp): Promise<RegExpExecArray>
  /** Ctrl-C: the kernel signals every process of the foreground group. */
  interrupt(): void
  /** Closes the window: the kernel sends SIGHUP, and writing fails from then on. */
  closeWindow(): void
  /** Waits for the end. @returns the exit code; null when a signal ended the program. */
  ended(): Promise<number | null>
}

/** Runs the command in the project's folder with these variables. */
export function spawnOnTerminal(command: string[], env: Record<string, string>): OnTerminal {
  let text = ''
  const decoder = new TextDecoder()
  const child = Bun.spawn(command, {
    cwd: ROOT,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      PORT: '0',
      TOLLGATE_ROOT_KEY: OPERATOR_KEY,
      ...env,
    },
    terminal: {
      cols: 400,
      rows: 50,
      data: (_, bytes) => {
        text += decoder.decode(bytes, { stream: true })
      },
    },
  })
  const output = () => Bun.stripANSI(text)
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  return {
    process: child,
    output,
    async shown(pattern) {
      for (const endMs = performance.now() + 50_000; performance.now() < endMs && !hasEnded(); ) {
        const found = pattern.exec(output())
        if (found !== null) return found
        await Bun.sleep(10)
      }
      throw new Error(`${pattern} is not shown: ${output()}`)
    },
    interrupt: () => void child.terminal?.write('\x03'),
    closeWindow: () => child.terminal?.close(),
    async ended() {
      await child.exited
      return child.exitCode
    },
    async [Symbol.asyncDispose]() {
      // After a hangup the program may be gone while its children still run: signal the whole group.
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // the whole group has ended
      }
      await child.exited
      child.terminal?.close()
    },
  }
}
