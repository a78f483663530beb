import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { RedisAddress } from '../../src/lib/fleet-url.ts'
import { freePort } from './nginx.ts'

/** The installed Redis or Valkey (`apt-get install redis-server`); null = tests that need it are skipped. */
export const REDIS_SERVER = Bun.which('redis-server') ?? Bun.which('valkey-server')
if (REDIS_SERVER === null) console.warn('no Redis is installed: what is shared through one is not tested')

/** A Redis for one test, which may kill and freeze it. It keeps nothing on disk, so it restarts empty. */
export type TestRedis = AsyncDisposable & {
  port: number
  address: RedisAddress
  /** Asks it, from outside of what is tested. */
  ask(command: string, ...args: (string | number)[]): Promise<unknown>
  /** With SIGKILL. */
  kill(): Promise<void>
  start(): Promise<void>
  freeze(): void
  thaw(): void
}

/** @param options.config Its configuration file. @param options.flags Of its command line, such as `--requirepass`. */
export async function startRedis(
  options: { config?: string; flags?: string[]; port?: number; address?: Partial<RedisAddress> } = {},
): Promise<TestRedis> {
  const port = options.port ?? (await freePort())
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-redis-'))
  const address = { ...redisAt(port), ...options.address }
  let child: Bun.Subprocess | null = null
  let admin: Redis | null = null
  const start = async () => {
    const flags = [
      ...(address.hasTls ? ['--port', '0', '--tls-port', String(port)] : ['--port', String(port)]),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--appendonly',
      'no',
      '--dir',
      folder,
    ]
    const config = options.config === undefined ? [] : [options.config]
    child = Bun.spawn([REDIS_SERVER ?? '', ...config, ...flags, ...(options.flags ?? [])], {
      stdout: Bun.file(join(folder, 'log')),
      stderr: 'inherit',
    })
    admin = new Redis({
      host: '127.0.0.1',
      port,
      protocol: 2,
      retryStrategy: () => 5,
      maxRetriesPerRequest: null,
      ...(address.password === undefined ? {} : { password: address.password }),
      ...(address.hasTls ? { tls: { rejectUnauthorized: false } } : {}),
    })
    admin.on('error', () => {}) // it is not there yet
    const ended = child.exited.then((code) => {
      throw new Error(`Redis ended with ${code}: ${readFileSync(join(folder, 'log'), 'utf8')}`)
    })
    ended.catch(() => {}) // the test may end it later on purpose
    await Promise.race([admin.ping(), ended])
  }
  const kill = async () => {
    admin?.disconnect()
    child?.kill('SIGKILL')
    await child?.exited
  }
  await start()
  return {
    port,
    address,
    ask: async (command, ...args) => await admin?.call(command, ...args),
    kill,
    start,
    freeze: () => child?.kill('SIGSTOP'),
    thaw: () => child?.kill('SIGCONT'),
    [Symbol.asyncDispose]: async () => {
      await kill()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export const redisAt = (port: number): RedisAddress => ({
  kind: 'redis',
  mode: 'single',
  hosts: [{ host: '127.0.0.1', port }],
  hasTls: false,
  user: undefined,
  password: undefined,
  database: 0,
  masterName: undefined,
  sentinelUser: undefined,
  sentinelPassword: undefined,
})
