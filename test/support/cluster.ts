import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type Sql } from '../../src/db/connect.ts'

/**
 * A Postgres for one test, which may stop, freeze and fill it. Nothing is synced: it is for deaths of processes, not of
 * machines.
 */
export type Cluster = AsyncDisposable & {
  /** URL with a role that owns the database and is not a superuser. */
  url: string
  port: number
  /** Runs one statement as superuser, for whom a few connections are reserved, by default in the same database. */
  query(text: string, database?: string): Promise<Record<string, unknown>[]>
  /** Ends all connections and opens as many as there may be in their place. */
  takeAllConnections(): Promise<Sql[]>
  /** Sets who may connect, as lines of `pg_hba.conf`. */
  hostRules(...lines: string[]): Promise<void>
  /** Starts a standby, which is read-only until it is promoted. */
  standby(): Promise<Standby>
  start(): Promise<void>
  /** `immediate` is like a crash: connections break without a message. */
  stop(mode: 'fast' | 'immediate'): Promise<void>
  /** Sends SIGKILL to all its processes. `start` then recovers what it had written. */
  kill(): Promise<void>
  /** Sends SIGSTOP to all its processes: connections stay and are even accepted, but nothing answers. */
  freeze(): void
  thaw(): void
}

export type Standby = AsyncDisposable & { port: number; promote(): Promise<void> }

/** The folder of `initdb` and `pg_ctl`; null = not installed. */
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
 * Creates and starts a cluster. Postgres refuses to run as root; then it runs as the user `postgres`, or `nobody`.
 * @param options.files Files to copy into its data folder, by name, readable for its user only.
 * @param options.settings Settings of Postgres besides the usual ones.
 * @param options.tablespace Folder for the data of the database; its log and its catalogue stay elsewhere. Null = the same
 *   folder.
 */
export async function startCluster(
  options: {
    tablespace?: string | null
    settings?: Record<string, string>
    files?: Record<string, string>
  } = {},
): Promise<Cluster> {
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
  for (const [name, path] of Object.entries(options.files ?? {})) {
    copyFileSync(path, join(data, name))
    chmodSync(join(data, name), 0o600)
    if (owner !== null) chownSync(join(data, name), owner.uid, owner.gid)
  }
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
  const query = async (text: string, database = 'tollgate') => {
    const url = `postgres://postgres@127.0.0.1:${port}/${database}`
    const admin = connect({ kind: 'url', url }, { connectionsMax: 1 })
    try {
      return await admin.unsafe(text)
    } finally {
      await admin.end()
    }
  }
  await query('create role tollgate login', 'postgres')
  let location = ''
  if (options.tablespace != null) {
    if (owner !== null) chownSync(options.tablespace, owner.uid, owner.gid)
    await query(`create tablespace small location '${options.tablespace}'`, 'postgres')
    location = 'tablespace small'
  }
  await query(`create database tollgate owner tollgate ${location}`, 'postgres')
  const url = `postgres://tollgate@127.0.0.1:${port}/tollgate`
  const processes = () => processesOf(join(data, 'postmaster.pid'))
  const standby = async (): Promise<Standby> => {
    const copy = join(folder, `standby-${crypto.randomUUID()}`)
    await run(
      join(bin, 'pg_basebackup'),
      ...[
        '-D',
        copy,
        '-R',
        '-c',
        'fast',
        '--no-sync',
        '-U',
        'postgres',
        '-h',
        '127.0.0.1',
        '-p',
        String(port),
      ],
    )
    const ownPort = await freePort()
    const controlCopy = (...args: string[]) => run(join(bin, 'pg_ctl'), '-D', copy, '-s', '-w', ...args)
    await controlCopy('-o', `${flags} -c port='${ownPort}'`, '-l', join(folder, 'standby.log'), 'start')
    return {
      port: ownPort,
      promote: () => controlCopy('promote'),
      [Symbol.asyncDispose]: () => controlCopy('-m', 'immediate', 'stop').catch(() => {}), // it may be stopped already
    }
  }
  return {
    url,
    port,
    query,
    standby,
    hostRules: async (...lines) => {
      const loadedAt = async () =>
        String((await query('select pg_conf_load_time()::text as at', 'postgres'))[0]?.at)
      const before = await loadedAt()
      const always = ['local all all trust', 'host postgres,replication postgres all trust']
      writeFileSync(join(data, 'pg_hba.conf'), `${[...always, ...lines].join('\n')}\n`)
      await control('reload')
      while ((await loadedAt()) === before) await Bun.sleep(10) // the postmaster has read the file when this changes
    },
    takeAllConnections: async () => {
      const taken: Sql[] = []
      for (;;) {
        const others = await query(
          `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'tollgate' and query <> $$${TAKE}$$`,
        )
        const one = connect({ kind: 'url', url }, { connectionsMax: 1 })
        taken.push(one)
        const failure = await one.unsafe(TAKE).then(
          () => null,
          (cause: unknown) => cause,
        )
        if (failure !== null && others.length === 0) return taken
      }
    },
    start,
    stop: (mode) => control('-m', mode, 'stop'),
    kill: async () => {
      const killed = processes()
      signal(killed, 'SIGKILL')
      while (isAnyAlive(killed)) await Bun.sleep(5) // a start would find their shared memory in use
      rmSync(join(data, 'postmaster.pid')) // nobody may have waited for that process yet
    },
    freeze: () => {
      signal(processes(), 'SIGSTOP')
    },
    thaw: () => {
      signal(processes(), 'SIGCONT')
    },
    [Symbol.asyncDispose]: async () => {
      signal(processes(), 'SIGCONT')
      await control('-m', 'immediate', 'stop').catch(() => {}) // it may be stopped already
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Identifies the connections that `takeAllConnections` opened. */
const TAKE = "select 'taken'"

/** Process ids, the postmaster first, so that it starts no more of them. Empty = not running. */
function processesOf(pidFile: string): number[] {
  if (!existsSync(pidFile)) return []
  const postmaster = Number(readFileSync(pidFile, 'utf8').split('\n')[0])
  const children = Bun.spawnSync(['ps', '-A', '-o', 'pid=,ppid=']).stdout.toString()
  const rows = children.split('\n').map((line) => line.trim().split(/\s+/).map(Number))
  return [postmaster, ...rows.flatMap(([pid = 0, parent]) => (parent === postmaster ? [pid] : []))]
}

/** Not those that have ended and that nobody has waited for. */
function isAnyAlive(pids: number[]): boolean {
  const states = Bun.spawnSync(['ps', '-o', 'stat=', '-p', pids.join()]).stdout.toString()
  return states.split('\n').some((state) => state !== '' && !state.startsWith('Z'))
}

/** Ignores processes that ended since they were listed, such as `ps`. */
function signal(pids: number[], name: 'SIGSTOP' | 'SIGCONT' | 'SIGKILL'): void {
  for (const pid of pids)
    try {
      process.kill(pid, name)
    } catch (cause) {
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'ESRCH')) throw cause
    }
}

/** The user to run Postgres as; null = this process is not root. */
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
