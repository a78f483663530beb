import type { Subprocess } from 'bun'
import { ROOT } from '../docs/blocks.ts'
import { OPERATOR_KEY } from './server.ts'

/** A program on a terminal of its own, as a person at a keyboard has it. */
export type OnTerminal = AsyncDisposable & {
  process: Subprocess
  /** Everything shown so far, without colours. */
  output(): string
  /** Waits until that is shown. @throws Error with what was shown, when it ends or does not come in time. */
  shown(pattern: RegExp): Promise<RegExpExecArray>
  /** Ctrl-C: the kernel signals every process of the foreground group. */
  interrupt(): void
  /** Closes the window: the kernel hangs up, and nothing can be written any more. */
  closeWindow(): void
  /** Waits for the end. @returns the exit code; null when a signal ended it. */
  ended(): Promise<number | null>
}

/** Runs it in the project's folder with these variables. */
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
      // A program that was hung up may be gone while what it started is not: all of its group.
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // everything in it has ended
      }
      await child.exited
      child.terminal?.close()
    },
  }
}
