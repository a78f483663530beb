import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Block, blockWith } from '../docs/blocks.ts'
import { NGINX, startNginx } from '../support/nginx.ts'
import { CADDY, HAPROXY, startCaddy, startHaproxy } from '../support/proxies.ts'

/**
 * Every configuration of a proxy in the docs, word for word. Only ports, addresses, paths of files and ids are replaced.
 * The files beside this one run them.
 */
export type Configuration = {
  name: string
  /** All its blocks. */
  blocks: readonly Block[]
  isInstalled: boolean
  /** @returns the proxy's URL. */
  start(place: Places, closing: AsyncDisposableStack): Promise<string>
}

export type Places = {
  /** Host and port of Tollgate, or the path of its socket. */
  tollgate: string
  /** The same for a second Tollgate. */
  second?: string
  /** Host and port of the application. */
  application: string
  apiId: string
  /** Networks that are admitted instead of 10.0.0.0/8. */
  inside?: string
}

const OPENSSL = Bun.which('openssl')
const UPSTREAM = /^upstream tollgate \{\n[^}]*\}\n/m
const V1 = /^ *location ~ \^\/v\[12\]\/ \{.*\}\n/m
const RETRIES: [RegExp, string] = [/proxy_next_upstream off;/, 'proxy_next_upstream error;']

/** In front of Tollgate. */
export const IN_FRONT: readonly Configuration[] = [
  nginxInFront('nginx'),
  nginxInFront('nginx, few methods', [V1, blockWith('nginx', 'nginx', 'deny all')]),
  haproxyInFront('HAProxy'),
  haproxyInFront('HAProxy, few methods', blockWith('haproxy', 'haproxy', 'acl for_all')),
  caddyWith('Caddy', blockWith('caddy', 'caddyfile', '@open path /v1/* /v2/*')),
  caddyWith('Caddy, few methods', blockWith('caddy', 'caddyfile', 'remote_ip')),
]

/** Tollgate listens on a Unix socket. */
export const OVER_A_SOCKET = nginxInFront('nginx over a socket', [
  UPSTREAM,
  blockWith('nginx', 'nginx', 'http.sock'),
])

/** A second Tollgate takes over while the first restarts; the guide says how to change this line. */
export const WITH_A_SECOND = nginxInFront(
  'nginx with a second Tollgate',
  [UPSTREAM, blockWith('nginx', 'nginx', 'backup')],
  RETRIES,
)

/** In front of an application, with a check by Tollgate. */
export const ASKING: readonly Configuration[] = [
  nginxAsking('nginx, short', blockWith('forward-auth', 'nginx', 'auth_request /tollgate')),
  nginxAsking('nginx', blockWith('nginx', 'nginx', 'auth_request /_key')),
  haproxyAsking(),
  caddyWith('Caddy, short', blockWith('forward-auth', 'caddyfile', 'forward_auth')),
  caddyWith('Caddy', blockWith('caddy', 'caddyfile', 'forward_auth')),
]

/** Those with an unchecked path, `/health`. */
export const WITH_AN_OPEN_PLACE: readonly string[] = ['nginx', 'HAProxy', 'Caddy']

function nginxInFront(
  name: string,
  instead?: [of: RegExp, block: Block],
  also?: [of: RegExp, by: string],
): Configuration {
  const front = blockWith('nginx', 'nginx', 'listen 443 ssl')
  let text = front.text
  if (instead !== undefined) text = replace(text, instead[0], instead[1].text)
  if (also !== undefined) text = replace(text, ...also)
  return {
    name,
    blocks: instead === undefined ? [front] : [front, instead[1]],
    isInstalled: NGINX !== null && OPENSSL !== null,
    start: async (places, closing) => {
      const port = await startNginx(({ port: listenPort, folder }) => {
        makeCertificate(folder, 'keys.example.com')
        const listening = replace(text, /listen 443 ssl/, `listen 127.0.0.1:${listenPort} ssl`)
        return settled(
          listening.replaceAll('/etc/nginx/keys.example.com', `${folder}/keys.example.com`),
          places,
        )
      }, closing)
      return `https://127.0.0.1:${port}`
    },
  }
}

function nginxAsking(name: string, block: Block): Configuration {
  return {
    name,
    blocks: [block],
    isInstalled: NGINX !== null,
    start: async (places, closing) => {
      const config = settled(block.text, places)
      const port = await startNginx(
        // A setting that a user may have for another server.
        (place) => `underscores_in_headers on;\nserver {\n  listen 127.0.0.1:${place.port};\n${config}}`,
        closing,
      )
      return `http://127.0.0.1:${port}`
    },
  }
}

function haproxyInFront(name: string, more?: Block): Configuration {
  const front = blockWith('haproxy', 'haproxy', 'frontend keys')
  const text =
    more === undefined
      ? front.text
      : replace(front.text, /^.*return status 404.*\n/m, (line) => line + more.text)
  return {
    name,
    blocks: more === undefined ? [front] : [front, more],
    isInstalled: HAPROXY !== null && OPENSSL !== null,
    start: (places, closing) => startHaproxyOf(text, places, closing),
  }
}

function haproxyAsking(): Configuration {
  const config = blockWith('haproxy', 'haproxy', 'lua.tollgate')
  const lua = blockWith('haproxy', 'lua', 'register_action')
  return {
    name: 'HAProxy',
    blocks: [config, lua],
    isInstalled: HAPROXY !== null && OPENSSL !== null,
    start: (places, closing) => startHaproxyOf(config.text, places, closing, lua.text),
  }
}

async function startHaproxyOf(
  text: string,
  places: Places,
  closing: AsyncDisposableStack,
  lua?: string,
): Promise<string> {
  const { port } = await startHaproxy(({ port: listenPort, folder }) => {
    const name = /keys\.example\.com|app\.example\.com/.exec(text)?.[0] ?? ''
    makeCertificate(folder, name)
    if (lua !== undefined) writeFileSync(join(folder, 'tollgate.lua'), settled(lua, places))
    const listening = replace(text, /bind :443/, `bind 127.0.0.1:${listenPort}`)
    return settled(listening.replaceAll('/etc/haproxy/', `${folder}/`), places)
  }, closing)
  return `https://127.0.0.1:${port}`
}

function caddyWith(name: string, block: Block): Configuration {
  return {
    name,
    blocks: [block],
    isInstalled: CADDY !== null,
    start: async (places, closing) => {
      // Without TLS, as Caddy would request a certificate. For every Host: what the site's name keeps out is not tested.
      const port = await startCaddy(
        (place) =>
          settled(replace(block.text, /^\S+ \{\n/, `http://:${place.port} {\n  bind 127.0.0.1\n`), places),
        closing,
      )
      return `http://127.0.0.1:${port}`
    },
  }
}

function replace(text: string, of: RegExp, by: string | ((found: string) => string)): string {
  if (!of.test(text)) throw new Error(`${of} is not in ${text}`)
  return text.replace(of, typeof by === 'string' ? () => by : by)
}

/** @throws Error when a value of the reader's own machine is left. */
function settled(text: string, { tollgate, second, application, apiId, inside }: Places): string {
  const config = text
    .replaceAll('/run/tollgate/http.sock', tollgate)
    .replaceAll('127.0.0.1:3000', tollgate)
    .replaceAll('127.0.0.1:3001', second ?? '')
    .replaceAll('127.0.0.1:8080', application)
    .replaceAll('api_…', apiId)
    .replaceAll('10.0.0.0/8', inside ?? '10.0.0.0/8')
  const left = /:300\d(?!\d)|:8080(?!\d)|\/etc\/|…|:443(?!\d)/.exec(config)?.[0]
  if (left !== undefined) throw new Error(`${left} is left in ${config}`)
  return config
}

/** `<name>.crt`, `.key`, and both in one `.pem`. */
function makeCertificate(folder: string, name: string): void {
  const path = join(folder, name)
  const made = Bun.spawnSync(
    `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=${name} -keyout ${path}.key -out ${path}.crt`.split(
      ' ',
    ),
  )
  if (made.exitCode !== 0) throw new Error(made.stderr.toString())
  const both = [`${path}.crt`, `${path}.key`].map((file) => readFileSync(file, 'utf8'))
  writeFileSync(`${path}.pem`, both.join(''), { mode: 0o600 })
}
