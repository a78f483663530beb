import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startTarget, type Target } from '../support/target.ts'

/**
 * What a user would take instead, each on the server's core like Tollgate: Fastify with rate-limiter-flexible on a Redis
 * of its own (whose CPU counts too) and in memory, Fastify with its rate limit plugin, nginx with `limit_req`. Programs
 * that are not installed are left out, with a line that says so. Fastify runs on Node where there is one.
 */
export async function startAll(): Promise<Target[]> {
  const node = Bun.which('node') ?? process.execPath
  const script = `${import.meta.dir}/fastify.js`
  const targets: Target[] = []
  const redis = await startRedis()
  if (redis !== null) {
    const name = 'Fastify, rate-limiter-flexible, Redis'
    const fastify = await startTarget(name, [script, 'redis', String(redis.port)], {}, node)
    targets.push(together(fastify, redis.target))
  }
  targets.push(await startTarget('Fastify, rate-limiter-flexible, memory', [script, 'memory'], {}, node))
  targets.push(await startTarget('Fastify, @fastify/rate-limit, memory', [script, 'plugin'], {}, node))
  const nginx = await startNginx()
  if (nginx !== null) targets.push(nginx)
  return targets
}

const together = (server: Target, store: Target): Target => ({
  ...server,
  cpuMicroseconds: () => server.cpuMicroseconds() + store.cpuMicroseconds(),
  memoryMib: () => server.memoryMib() + store.memoryMib(),
  signal: (name) => {
    server.signal(name)
    store.signal(name)
  },
  [Symbol.asyncDispose]: async () => {
    await server[Symbol.asyncDispose]()
    await store[Symbol.asyncDispose]()
  },
})

async function startRedis(): Promise<{ target: Target; port: number } | null> {
  const program = Bun.which('redis-server')
  if (program === null) {
    console.log('  peers: redis-server is not installed')
    return null
  }
  const port = await freePort()
  const command = `echo listens on http://127.0.0.1:${port}; exec ${program} --port ${port} --save "" --appendonly no --daemonize no >/dev/null`
  const target = await startTarget('Redis', ['-c', command], {}, '/bin/sh')
  await isListening(port)
  return { target, port }
}

/** It cannot look into a body, so all requests share the address's counter, and it answers POST by way of an error page. */
async function startNginx(): Promise<Target | null> {
  const program = Bun.which('nginx')
  if (program === null) {
    console.log('  peers: nginx is not installed')
    return null
  }
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-nginx-'))
  const port = await freePort()
  writeFileSync(
    join(folder, 'nginx.conf'),
    `daemon off; master_process off; pid ${folder}/pid; error_log /dev/null;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000000; client_body_temp_path ${folder}/body;
  limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;
  server {
    listen 127.0.0.1:${port};
    location / { limit_req zone=all burst=1000000 nodelay; empty_gif; error_page 405 =200 @passed; }
    location @passed { default_type application/json; return 200 '{"success":true}'; }
  }
}
`,
  )
  const command = `echo listens on http://127.0.0.1:${port}; exec ${program} -c ${folder}/nginx.conf`
  const target = await startTarget('nginx limit_req, body not read', ['-c', command], {}, '/bin/sh')
  await isListening(port)
  return {
    ...target,
    [Symbol.asyncDispose]: async () => {
      await target[Symbol.asyncDispose]()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

async function isListening(port: number): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    try {
      const socket = await Bun.connect({ hostname: '127.0.0.1', port, socket: { data() {} } })
      socket.end()
      return
    } catch {
      await Bun.sleep(50)
    }
  }
  throw new Error(`nothing listens on port ${port}`)
}
