import { readdirSync, readFileSync } from 'node:fs'
import { pin } from './load.ts'

/** A server under load, in a process of its own. */
export type Target = AsyncDisposable & {
  name: string
  url: string
  /** CPU time of all its threads so far, microseconds. Not a number where the system does not tell. */
  cpuMicroseconds(): number
  /** Resident memory, MiB. */
  memoryMib(): number
  signal(name: NodeJS.Signals): void
  /** Open files, sockets and the like. Not a number where the system does not tell. */
  handles(): number
}

/**
 * Starts a script that prints `listens on <url>` when it is ready; on the first core unless told otherwise.
 * @param program Runs it; Bun where none is given.
 * @param options.isPinned False: it may use all cores.
 */
export async function startTarget(
  name: string,
  script: string[],
  env: Record<string, string> = {},
  program: string = process.execPath,
  { isPinned = true }: { isPinned?: boolean } = {},
): Promise<Target> {
  const child = Bun.spawn([...(isPinned ? pin(0) : []), program, ...script], {
    // The last one as `bun run start` sets it (src/doors/http/young-garbage.ts), for all that are compared.
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      BUN_IDLE_GC_SECONDS: '300',
      ...env,
    },
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  void (async () => {
    let text = ''
    const decoder = new TextDecoder()
    for await (const chunk of child.stdout) {
      if (text.length < 10_000) text += decoder.decode(chunk)
      const url = /listens on (http:\S+)/.exec(text)?.[1]
      if (url !== undefined) resolve(url)
    }
    reject(new Error(`${name} ended: ${text}`))
  })()
  const timer = setTimeout(() => reject(new Error(`${name} does not listen`)), 30_000)
  const url = await promise.finally(() => clearTimeout(timer))
  promise.catch(() => {})
  return {
    name,
    url,
    cpuMicroseconds: () => cpuMicroseconds(child.pid),
    memoryMib: () => Number(/VmRSS:\s+(\d+)/.exec(read(`/proc/${child.pid}/status`))?.[1]) / 1024,
    signal: (name) => child.kill(name),
    handles: () => countOf(`/proc/${child.pid}/fd`),
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM')
      await child.exited
    },
  }
}

/** Has all servers but one stand still, so that who is measured has its core to itself. */
export class Turns implements Disposable {
  // Also where a signal ends the benchmark: one that stands still could not be ended.
  private readonly onExit = () => this.end()

  constructor(private readonly targets: readonly Target[]) {
    process.once('exit', this.onExit)
  }

  /** From now on only this one runs. What it had to do meanwhile is behind it. */
  async give(to: Target): Promise<void> {
    for (const each of this.targets) each.signal(each === to ? 'SIGCONT' : 'SIGSTOP')
    await Bun.sleep(CATCH_UP_MS)
  }

  /** All run again. */
  end(): void {
    for (const each of this.targets) each.signal('SIGCONT')
  }

  [Symbol.dispose](): void {
    process.off('exit', this.onExit)
    this.end()
  }
}

const CATCH_UP_MS = 200

/** User and system time from the kernel's account, which counts in hundredths of a second. */
function cpuMicroseconds(pid: number): number {
  const stat = read(`/proc/${pid}/stat`)
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10_000
}

function countOf(folder: string): number {
  try {
    return readdirSync(folder).length
  } catch {
    return Number.NaN
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return '' // not Linux: the figures are then not numbers
  }
}
