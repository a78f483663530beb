import { chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from './nginx.ts'

/** The installed PgBouncer: `apt-get install pgbouncer`. */
export const PGBOUNCER = Bun.which('pgbouncer', { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` })
if (PGBOUNCER === null) console.warn('no PgBouncer is installed: what goes through one is not tested')

/**
 * Runs PgBouncer in front of a Postgres until `closing` is disposed. It refuses to run as root; then it runs as `nobody`.
 * @param to Address and role of that Postgres. PgBouncer lets every client in.
 * @returns the URL through PgBouncer.
 */
export async function startPgBouncer(
  to: string,
  settings: { pool_mode: 'session' | 'transaction' | 'statement' } & Record<string, string>,
  closing: AsyncDisposableStack,
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-pgbouncer-'))
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  const port = await freePort()
  const { hostname, port: toPort, username, password } = new URL(to)
  const reached = `host=${hostname} port=${toPort || 5432} user=${username}${password === '' ? '' : ` password=${password}`}`
  const all = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'any',
    max_client_conn: '200',
    ...settings,
  }
  const file = join(folder, 'pgbouncer.ini')
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`)
  writeFileSync(file, `[databases]\n* = ${reached}\n[pgbouncer]\n${lines.join('\n')}\n`)
  const isRoot = process.getuid?.() === 0
  if (isRoot) for (const path of [folder, file]) chownSync(path, 65_534, 65_534)
  const as = isRoot ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : []
  const log = join(folder, 'log')
  const child = Bun.spawn([...as, PGBOUNCER ?? '', file], { stderr: Bun.file(log), stdout: 'ignore' })
  closing.defer(async () => {
    child.kill('SIGKILL')
    await child.exited
  })
  for (let attempt = 0; attempt < 400; attempt++) {
    if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${readFileSync(log, 'utf8')}`)
    if (readFileSync(log, 'utf8').includes('process up')) {
      const url = new URL(to)
      url.host = `127.0.0.1:${port}`
      return url.href
    }
    await Bun.sleep(25)
  }
  throw new Error('PgBouncer does not start')
}
