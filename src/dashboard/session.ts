import type { Services } from '../api/parts.ts'
import { authenticate } from '../api/root-keys/authorize.ts'
import { ROOT_WORKSPACE_ID } from '../api/root-keys/store.ts'
import { whoamiRootKey } from '../api/root-keys/whoami.ts'
import { whoamiReply } from '../doors/v1/root-keys/routes.ts'
import { type AnyErrorCode, ApiError } from '../errors.ts'
import { hashKey } from '../verify/secret.ts'
import type { SignedInReply } from './schema.ts'
import { SESSION_MS, type Session, type SignedIn, withSignIn } from './seal.ts'

/** Who asks, as `authenticate` wants to know it. */
export type Asker = { requestId: string; userAgent: string | null; clientAddress(): string | null }

/** Why a root key opens nothing any more, rather than not this. */
const ENDS: readonly AnyErrorCode[] = ['UNAUTHORIZED', 'DISABLED', 'EXPIRED', 'FORBIDDEN', 'NOT_FOUND']

/**
 * The checks of a root key at each request, without a charge.
 * @throws ApiError UNAUTHENTICATED when the root key was refused: revoked, expired, or used from another address.
 */
export async function requireLive(services: Services, { hash }: SignedIn, asker: Asker) {
  try {
    return await authenticate(services, { ...asker, authorization: null, sessionHash: hash })
  } catch (cause) {
    if (!(cause instanceof ApiError && ENDS.includes(cause.code))) throw cause
    throw new ApiError('UNAUTHENTICATED', `the session has ended: ${cause.message}`)
  }
}

/** @throws as {@link requireLive}. */
export async function describe(services: Services, own: SignedIn, asker: Asker): Promise<SignedInReply> {
  const actor = await requireLive(services, own, asker)
  return { ...whoamiReply(await whoamiRootKey(services, actor)), endsAt: own.issuedAt + SESSION_MS }
}

/**
 * Signs in: the session with this root key too.
 * @throws ApiError RATE_LIMITED after too many failures; those of `authenticate`, with their own codes.
 */
export async function openSession(
  services: Services,
  { session, rootKey, asker }: { session: Session | null; rootKey: string; asker: Asker },
): Promise<Session> {
  await countFailure(services, asker, 0)
  const now = services.clock()
  const hash = hashKey(rootKey)
  try {
    const { workspaceId } = await authenticate(services, { ...asker, authorization: null, sessionHash: hash })
    return withSignIn(session ?? { signedIn: [] }, { hash, workspaceId, issuedAt: now }, now)
  } catch (cause) {
    if (cause instanceof ApiError && ENDS.includes(cause.code)) await countFailure(services, asker, 1)
    throw cause
  }
}

/**
 * Failed sign-ins of all threads, in the limiter's windows.
 * @param cost 0 = only look.
 * @throws ApiError RATE_LIMITED
 */
async function countFailure({ limiter }: Services, asker: Asker, cost: 0 | 1): Promise<void> {
  const limits = [
    { of: `address ${asker.clientAddress() ?? 'none'}`, limit: FAILURES_PER_ADDRESS },
    { of: 'all', limit: FAILURES_IN_ALL },
  ]
  const decisions = await limiter.submitAll(
    limits.map(({ of, limit }) => ({
      counter: `dashboard sign-in\n${MINUTE_MS}\n${of}`,
      workspaceId: ROOT_WORKSPACE_ID,
      limit,
      durationMs: MINUTE_MS,
      cost,
    })),
  )
  if (cost === 0 && decisions.some(({ used }, index) => used >= (limits[index]?.limit ?? 0)))
    throw new ApiError('RATE_LIMITED', 'too many failed sign-ins: wait a minute')
}

const MINUTE_MS = 60_000
const FAILURES_PER_ADDRESS = 10
const FAILURES_IN_ALL = 100
