import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type Sql } from '../../src/db/connect.ts'

/** A Postgres of the test's own, to be stopped, frozen, filled and starved. Nothing is synced: it is for processes to die, not machines. */
export type Cluster = AsyncDisposable & {
  /** Of a role that is no superuser and owns the database. */
  url: string
  /** As superuser, on connections kept back for one. */
  admin: Sql
  start(): Promise<void>
  /** `immediate` is what a crash is: connections break without a word. */
  stop(mode: 'fast' | 'immediate'): Promise<void>
  /** SIGSTOP to every process of it: connections stay, are even accepted, and nothing answers. */
  freeze(): void
  thaw(): void
}

/** Where `initdb` and `pg_ctl` are; null = not installed. */
export const POSTGRES_BIN = findPostgres()

function findPostgres(): string | null {
  const installed = '/usr/lib/postgresql'
  const versions = existsSync(installed) ? readdirSync(installed).sort((a, b) => Number(b) - Number(a)) : []
  const found = versions
    .map((each) => join(installed, each, 'bin'))
    .find((bin) => existsSync(join(bin, 'initdb')))
  if (found !== undefined) return found
  const initdb = Bun.which('initdb')
  return initdb === null ? null : join(initdb, '..')
}

/**
 * Makes and starts one. Postgres refuses to run as root, so then it runs as the user `postgres`, else `nobody`.
 * @param options.settings Beyond the small defaults here, as in postgresql.conf.
 */
export async function startCluster(options: { settings?: Record<string, string> } = {}): Promise<Cluster> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-cluster-'))
  const owner = await unprivilegedUser()
  if (owner !== null) chownSync(folder, owner.uid, owner.gid)
  const data = join(folder, 'data')
  const run = async (...command: string[]) => {
    const as =
      owner === null ? [] : ['setpriv', `--reuid=${owner.uid}`, `--regid=${owner.gid}`, '--clear-groups']
    const child = Bun.spawn([...as, ...command], {
      cwd: folder,
      stdout: 'pipe',
      stderr: 'pipe',
      env: { LC_ALL: 'C', PATH: process.env.PATH ?? '' },
    })
    if ((await child.exited) !== 0)
      throw new Error(`${command.join(' ')}: ${await new Response(child.stderr).text()}`)
  }
  const bin = POSTGRES_BIN ?? ''
  await run(join(bin, 'initdb'), '-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync')
  const port = await freePort()
  const settings = Object.entries({
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    fsync: 'off',
    shared_buffers: '16MB',
    max_connections: '40',
    ...options.settings,
  })
  const flags = settings.map(([name, value]) => `-c ${name}='${value}'`).join(' ')
  const control = (...args: string[]) => run(join(bin, 'pg_ctl'), '-D', data, '-s', '-w', ...args)
  const start = () => control('-o', flags, '-l', join(folder, 'log'), 'start')
  await start()
  const admin = connect(
    { kind: 'url', url: `postgres://postgres@127.0.0.1:${port}/postgres` },
    { connectionsMax: 1 },
  )
  await admin`create role tollgate login`
  await admin`create database tollgate owner tollgate`
  const processes = () => processesOf(join(data, 'postmaster.pid'))
  return {
    url: `postgres://tollgate@127.0.0.1:${port}/tollgate`,
    admin,
    start,
    stop: (mode) => control('-m', mode, 'stop'),
    freeze: () => {
      for (const pid of processes()) process.kill(pid, 'SIGSTOP')
    },
    thaw: () => {
      for (const pid of processes()) process.kill(pid, 'SIGCONT')
    },
    [Symbol.asyncDispose]: async () => {
      await admin.end({ timeout: 0 })
      for (const pid of processes()) process.kill(pid, 'SIGCONT')
      await control('-m', 'immediate', 'stop').catch(() => {}) // it may be stopped already
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** The postmaster first: it makes no more of them then. Empty = not running. */
function processesOf(pidFile: string): number[] {
  if (!existsSync(pidFile)) return []
  const postmaster = Number(readFileSync(pidFile, 'utf8').split('\n')[0])
  const children = Bun.spawnSync(['ps', '-A', '-o', 'pid=,ppid=']).stdout.toString()
  const rows = children.split('\n').map((line) => line.trim().split(/\s+/).map(Number))
  return [postmaster, ...rows.flatMap(([pid = 0, parent]) => (parent === postmaster ? [pid] : []))]
}

/** Null = we are nobody special ourselves. */
async function unprivilegedUser(): Promise<{ uid: number; gid: number } | null> {
  if (process.getuid?.() !== 0) return null
  const lines = (await Bun.file('/etc/passwd').text()).split('\n').map((line) => line.split(':'))
  const user = lines.find(([name]) => name === 'postgres') ?? lines.find(([name]) => name === 'nobody')
  return { uid: Number(user?.[2]), gid: Number(user?.[3]) }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (typeof address !== 'object' || address === null) throw new Error('no port')
  return address.port
}
