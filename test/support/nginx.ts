import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The installed nginx (`apt-get install nginx`); null = tests that need it are skipped. */
export const NGINX = Bun.which('nginx', { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` })
if (NGINX === null) console.warn('no nginx is installed: what stands behind one is not tested')

/**
 * A free port, for programs that cannot choose one themselves. Not from the range of automatic ports (on Linux from 32 768
 * on), where another program may get it before it is used.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    try {
      await Bun.serve({ hostname: '127.0.0.1', port, fetch: () => new Response() }).stop(true)
      return port
    } catch {
      // the port is in use
    }
  }
}

/**
 * Runs nginx until `closing` is disposed.
 * @param httpOf Content of the `http` block, for the port to listen on and a folder that exists while nginx runs.
 * @returns the port, once it takes connections.
 * @throws Error when nginx ends instead.
 */
export async function startNginx(
  httpOf: (place: { port: number; folder: string }) => string,
  closing: AsyncDisposableStack,
): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-nginx-'))
  chmodSync(folder, 0o755) // when started as root, its workers run as another user
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  const port = await freePort()
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  )
  writeFileSync(
    `${folder}/nginx.conf`,
    `daemon off; pid ${folder}/pid; error_log stderr crit; worker_processes 1;
events {}
http {
  access_log off; ${paths.join(' ')}
${httpOf({ port, folder })}
}`,
  )
  const child = Bun.spawn([NGINX ?? '', '-p', folder, '-c', `${folder}/nginx.conf`], { stderr: 'inherit' })
  closing.defer(async () => {
    child.kill('SIGTERM')
    await child.exited
  })
  for (let attempt = 0; attempt < 200; attempt++) {
    if (child.exitCode !== null) throw new Error(`nginx ended with ${child.exitCode}`)
    if (await takesConnections(port)) return port
    await Bun.sleep(25)
  }
  throw new Error('nginx does not answer')
}

/** @param place A port of this machine, or the path of a Unix socket. */
export async function takesConnections(place: number | string): Promise<boolean> {
  const socket = { data() {} }
  try {
    const connecting =
      typeof place === 'number'
        ? Bun.connect({ hostname: '127.0.0.1', port: place, socket })
        : Bun.connect({ unix: place, socket })
    ;(await connecting).end()
    return true
  } catch {
    return false
  }
}
