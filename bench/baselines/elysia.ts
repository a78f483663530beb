import { Elysia } from 'elysia'
import { VerifyKeyBody } from '../../src/doors/v1/keys/schema.ts'
import { LimitBody } from '../../src/doors/v1/ratelimits/schema.ts'

// Elysia with the same body schemas and nothing behind them, written as its guide does.
const reply = { success: true, limit: 1, remaining: 1, reset: 1_800_000_000_000 }
const app = new Elysia()
  .post('/v1/ratelimits.limit', () => reply, { body: LimitBody })
  .post('/v1/keys.verifyKey', () => reply, { body: VerifyKeyBody })
  .listen(0)
console.log(`listens on http://127.0.0.1:${app.server?.port}`)
