import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, takesConnections } from './nginx.ts'

const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`
/** The installed proxies (`apt-get install haproxy caddy`). Tests of a missing one are skipped. */
export const HAPROXY = Bun.which('haproxy', { PATH })
export const CADDY = Bun.which('caddy', { PATH })
for (const [name, path] of Object.entries({ haproxy: HAPROXY, caddy: CADDY }))
  if (path === null) console.warn(`${name} is not installed: tests that need it are skipped`)

/** Values for a configuration: the port to listen on, and a folder that exists while the proxy runs. */
export type Place = { port: number; folder: string }

/**
 * Runs HAProxy until `closing` is disposed.
 * @param configOf Makes the whole configuration.
 * @returns the port, and the socket of its statistics, once both take connections.
 */
export async function startHaproxy(
  configOf: (place: Place) => string,
  closing: AsyncDisposableStack,
): Promise<{ port: number; stats: string }> {
  return await withFreePort('haproxy', closing, async (place) => {
    const stats = `${place.folder}/stats`
    writeFileSync(`${place.folder}/haproxy.cfg`, configOf(place))
    writeFileSync(`${place.folder}/stats.cfg`, `global\n    stats socket ${stats} level admin\n`)
    const files = ['haproxy.cfg', 'stats.cfg'].flatMap((name) => ['-f', `${place.folder}/${name}`])
    // HAProxy listens on its port before it creates the socket.
    await run([HAPROXY ?? '', '-db', ...files], { ...place, awaited: [place.port, stats] }, closing)
    return { port: place.port, stats }
  })
}

/**
 * Runs Caddy until `closing` is disposed, without its API and without certificates.
 * @param sitesOf Makes the part after the global options.
 * @returns the port, once it takes connections.
 */
export async function startCaddy(
  sitesOf: (place: Place) => string,
  closing: AsyncDisposableStack,
): Promise<number> {
  return await withFreePort('caddy', closing, async (place) => {
    const file = `${place.folder}/Caddyfile`
    const options = '{\n  admin off\n  auto_https off\n  log {\n    level ERROR\n  }\n}\n'
    writeFileSync(file, `${options}${sitesOf(place)}`)
    const command = [CADDY ?? '', 'run', '--adapter', 'caddyfile', '--config', file]
    await run(command, { ...place, awaited: [place.port] }, closing)
    return place.port
  })
}

/** Another test may take a free port before the proxy listens. Then this tries another port. */
async function withFreePort<T>(
  name: string,
  closing: AsyncDisposableStack,
  start: (place: Place) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(await placeFor(name, closing))
    } catch (cause) {
      if (attempt === 3 || !(cause instanceof EndedError)) throw cause
    }
  }
}

class EndedError extends Error {}

async function placeFor(name: string, closing: AsyncDisposableStack): Promise<Place> {
  const folder = mkdtempSync(join(tmpdir(), `tollgate-${name}-`))
  chmodSync(folder, 0o755) // the proxy may run as another user
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  return { folder, port: await freePort() }
}

/**
 * Runs a program until every awaited port and socket takes connections.
 * @throws EndedError with its output, when it ends instead.
 */
async function run(
  command: string[],
  { folder, awaited }: { folder: string; awaited: (number | string)[] },
  closing: AsyncDisposableStack,
): Promise<void> {
  const child = Bun.spawn(command, {
    cwd: folder,
    env: { PATH, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
    stdout: 'ignore',
    stderr: 'pipe',
  })
  const written = new Response(child.stderr).text()
  closing.defer(async () => {
    child.kill('SIGTERM')
    const patience = setTimeout(() => child.kill('SIGKILL'), 5000)
    await child.exited
    clearTimeout(patience)
  })
  for (let attempt = 0; attempt < 600; attempt++) {
    if (child.exitCode !== null)
      throw new EndedError(`${command[0]} ended with ${child.exitCode}: ${await written}`)
    const takes = await Promise.all(awaited.map(takesConnections))
    if (takes.every(Boolean)) return
    await Bun.sleep(25)
  }
  throw new Error(`${command[0]} does not answer`)
}
