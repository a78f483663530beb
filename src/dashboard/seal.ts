import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'

/** One root key that a browser signed in with. */
export type SignedIn = {
  /** SHA-256 of the root key, base64. */
  hash: string
  workspaceId: string
  /** When it signed in, Unix ms. */
  issuedAt: number
}

/** What a cookie holds. The root keys themselves are nowhere. */
export type Session = {
  /** When the browser was last used, Unix ms. */
  seenAt: number
  /** At most {@link ROOT_KEYS_MAX}, each of another workspace, the latest last. */
  signedIn: readonly SignedIn[]
}

/** Longest time between a sign-in and its end, ms. */
export const SESSION_MS = 12 * 3_600_000
/** A session ends after this long without use, ms. */
export const IDLE_MS = 3_600_000
export const ROOT_KEYS_MAX = 8

/**
 * Seals sessions into cookies: AES-256-GCM under a key that HKDF derives from a secret, so that a browser can neither read
 * nor change them. Nothing is stored on the server, and every server with the same secret opens them.
 */
export class SessionSealer {
  private readonly keys: readonly Buffer[]

  /** @param secrets At least one; the first seals, all open. */
  constructor(secrets: readonly Uint8Array[]) {
    this.keys = secrets.map((secret) =>
      Buffer.from(hkdfSync('sha256', secret, new Uint8Array(), 'dashboard session', 32)),
    )
  }

  seal({ seenAt, signedIn }: Session): string {
    const text = JSON.stringify([
      seenAt,
      ...signedIn.map(({ hash, workspaceId, issuedAt }) => [hash, workspaceId, issuedAt]),
    ])
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv('aes-256-gcm', this.keys[0] as Buffer, nonce) // the constructor's caller gives one
    const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()])
    return `${VERSION}${sealed.toString('base64url')}`
  }

  /** @returns null for a text that none of the keys sealed, and when no sign-in in it lasts any more. */
  open(text: string, now: number): Session | null {
    if (!text.startsWith(VERSION) || text.length > TEXT_CHARACTERS_MAX) return null
    const encoded = text.slice(VERSION.length)
    const sealed = Buffer.from(encoded, 'base64url')
    if (sealed.length <= NONCE_BYTES + TAG_BYTES) return null
    if (sealed.toString('base64url') !== encoded) return null // another spelling of the same bytes
    for (const key of this.keys) {
      const opened = openWith(key, sealed)
      if (opened === null) continue
      const [seenAt, ...rows] = JSON.parse(opened) as [number, ...[string, string, number][]] // sealed by `seal`
      const signedIn = rows
        .map(([hash, workspaceId, issuedAt]) => ({ hash, workspaceId, issuedAt }))
        .filter(({ issuedAt }) => now < issuedAt + SESSION_MS)
      return now < seenAt + IDLE_MS && signedIn.length > 0 ? { seenAt, signedIn } : null
    }
    return null
  }
}

function openWith(key: Buffer, sealed: Buffer): string | null {
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, NONCE_BYTES))
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
  try {
    const text = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES))
    return Buffer.concat([text, decipher.final()]).toString('utf8')
  } catch {
    return null // another key sealed it, or it was changed
  }
}

const VERSION = '1.'
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** Browsers keep no longer cookie. */
const TEXT_CHARACTERS_MAX = 4096

/** The session with this sign-in too. A workspace has one; beyond {@link ROOT_KEYS_MAX} the oldest go. */
export const withSignIn = (
  { signedIn }: Pick<Session, 'signedIn'>,
  added: SignedIn,
  now: number,
): Session => ({
  seenAt: now,
  signedIn: [...signedIn.filter(({ workspaceId }) => workspaceId !== added.workspaceId), added].slice(
    -ROOT_KEYS_MAX,
  ),
})

/** The session without the sign-in of this workspace. */
export const withoutSignIn = (session: Session, workspaceId: string): Session => ({
  ...session,
  signedIn: session.signedIn.filter((each) => each.workspaceId !== workspaceId),
})
