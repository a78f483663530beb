// What a Node program would do by itself: Fastify with the same body schema and a fixed window per identifier.
import Fastify from 'fastify'
import Redis from 'ioredis'
import { RateLimiterMemory, RateLimiterRedis } from 'rate-limiter-flexible'

const [kind, redisPort] = process.argv.slice(2)
const POINTS = 2_000_000_000
const app = Fastify()
const schema = {
  body: {
    type: 'object',
    required: ['identifier', 'limit', 'duration'],
    properties: {
      namespace: { type: 'string', minLength: 1, maxLength: 512 },
      identifier: { type: 'string', maxLength: 1024 },
      limit: { type: 'integer', exclusiveMinimum: 0 },
      duration: { type: 'integer', minimum: 1000 },
      cost: { type: 'integer', minimum: 0 },
    },
  },
}

if (kind === 'plugin') {
  await app.register(import('@fastify/rate-limit'), {
    max: POINTS,
    timeWindow: '1 day',
    hook: 'preHandler', // once the body is there
    keyGenerator: (request) => request.body.identifier,
  })
  app.post('/v1/ratelimits.limit', { schema }, async (_, reply) => {
    const remaining = Number(reply.getHeader('x-ratelimit-remaining'))
    return { success: true, limit: POINTS, remaining, reset: Date.now() }
  })
} else {
  const options = { points: POINTS, duration: 86_400 }
  const limiter =
    kind === 'redis'
      ? new RateLimiterRedis({ ...options, storeClient: new Redis({ port: Number(redisPort) }) })
      : new RateLimiterMemory(options)
  app.post('/v1/ratelimits.limit', { schema }, async (request) => {
    const taken = await limiter.consume(request.body.identifier, request.body.cost ?? 1)
    const { remainingPoints: remaining, msBeforeNext } = taken
    return { success: true, limit: POINTS, remaining, reset: Date.now() + msBeforeNext }
  })
}
await app.listen({ port: 0, host: '127.0.0.1' })
console.log(`listens on http://127.0.0.1:${app.server.address().port}`)
