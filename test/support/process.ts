import type { Subprocess } from 'bun'
import { callsTo, OPERATOR_KEY, type TestServer } from './server.ts'

/** A server in its own process, as `bun run start` makes it, for tests that kill, stop and restart it. */
export type ServerProcess = AsyncDisposable &
  Pick<TestServer, 'get' | 'post'> & {
    url: string
    process: Subprocess<'ignore', 'pipe', 'pipe'>
    /** Ms from spawning to the line with the URL. */
    startedInMs: number
    /** Sends the signal and waits for the end. @returns the exit code; null when a signal ended the process. */
    end(signal: NodeJS.Signals): Promise<number | null>
    /** Everything written so far to both streams. */
    output(): string
    /** Closes the reading end of one stream, as when the collector of the log dies. */
    stopReading(stream: 'stdout' | 'stderr'): Promise<void>
  }

/**
 * Starts `serve` with these variables and waits until it listens.
 * @param options.main Its main file, where it is of another release.
 * @param options.preload A module that runs in the process before anything else.
 * @param options.core The only core it may use; needs `taskset`.
 * @param options.openFilesMax Its limit of open files.
 * @throws Error with the output, when it ends or does not listen in time.
 */
export async function spawnServer(
  env: Record<string, string>,
  options: { main?: string; preload?: string; core?: number; openFilesMax?: number } = {},
): Promise<ServerProcess> {
  const began = performance.now()
  const preload = options.preload === undefined ? [] : ['--preload', options.preload]
  const pin = options.core === undefined ? [] : ['taskset', '-c', String(options.core)]
  const files =
    options.openFilesMax === undefined
      ? []
      : ['sh', '-c', 'ulimit -n "$0" && exec "$@"', String(options.openFilesMax)]
  const { main = `${import.meta.dir}/../../src/main.ts` } = options
  const child = Bun.spawn([...files, ...pin, process.execPath, ...preload, main, 'serve'], {
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      PORT: '0',
      TOLLGATE_ROOT_KEY: OPERATOR_KEY,
      // Long, because a slow machine is not an outage. Tests of outages set their own.
      TOLLGATE_DB_TIMEOUT_MS: '20000',
      ...env,
    },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  let text = ''
  const { promise: listening, resolve, reject } = Promise.withResolvers<string>()
  const readers = { stdout: child.stdout.getReader(), stderr: child.stderr.getReader() }
  const collect = async (reader: (typeof readers)['stdout']) => {
    const decoder = new TextDecoder()
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      text += decoder.decode(next.value, { stream: true })
      const url = /^Tollgate listens on (\S+)/m.exec(text)?.[1]
      if (url !== undefined) resolve(url)
    }
  }
  const read = Promise.all(Object.values(readers).map(collect))
  void child.exited.then(async (code) => {
    await read
    reject(new Error(`the server ended with ${code}: ${text}`))
  })
  const timer = setTimeout(() => reject(new Error(`the server does not listen: ${text}`)), 60_000)
  let url: string
  try {
    url = await listening
  } catch (cause) {
    child.kill('SIGKILL')
    throw cause
  } finally {
    clearTimeout(timer)
  }
  listening.catch(() => {}) // the test may end it later on purpose
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal)
    await child.exited
    await read
    return child.exitCode
  }
  return {
    url,
    process: child,
    startedInMs: performance.now() - began,
    end,
    output: () => text,
    stopReading: (stream) => readers[stream].cancel(),
    ...callsTo(url),
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode === null && child.signalCode === null) await end('SIGKILL')
    },
  }
}
