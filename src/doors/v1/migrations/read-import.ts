import { type KeyToImport, LINKS_MAX } from '../../../api/migrations/imports.ts'
import { badRequest } from '../../../errors.ts'
import { KEY_HASH_WANTED, readKeyHash } from '../../../lib/key-hash.ts'
import { readMeta } from '../../../lib/meta.ts'
import { expiryOf, readRatelimit, readRefill } from '../keys/fields.ts'
import type { ImportElement } from './schema.ts'

/**
 * Reads one key of a migration.
 * @param path Its place in the request, for messages.
 * @throws ApiError BAD_REQUEST when both hash and plaintext are missing, or for contradictory fields.
 */
export function readImport(element: ImportElement, path: string): KeyToImport {
  const { plaintext = '', hash, meta = null } = element // an empty text counts as absent
  const refill = readRefill(element.refill, element.remaining, `${path}.refill`)
  if (plaintext === '' && (hash === undefined || hash.value === ''))
    throw badRequest(`${path}: either hash or plaintext is required`)
  const ratelimit = readRatelimit(element.ratelimit, `${path}.ratelimit`)
  readMeta(meta, `${path}.meta`)
  return {
    secret: plaintext === '' ? { hash: readHash(hash?.value ?? '', `${path}.hash.value`) } : { plaintext },
    start: element.start ?? null,
    prefix: element.prefix ?? '',
    name: element.name ?? null,
    ownerId: element.ownerId || null,
    externalId: element.externalId || null,
    meta,
    environment: element.environment ?? null,
    enabled: element.enabled ?? true,
    expiresAt: expiryOf(element.expires),
    remaining: element.remaining ?? null,
    refill,
    ratelimit,
    roles: element.roles ?? [],
    permissions: element.permissions ?? [],
  }
}

/**
 * The hash in the form used for look-ups. A text that looks like a digest but is not SHA-256 is refused, as its key could
 * never be found. Shorter texts pass: v1 accepted any text, and programs are tested with such.
 * @throws ApiError BAD_REQUEST
 */
function readHash(text: string, path: string): string {
  const hash = readKeyHash(text)
  if (hash !== null) return hash
  if (text.length >= DIGEST_CHARACTERS_MIN || SHORT_DIGEST.test(text))
    throw badRequest(`${path}: ${KEY_HASH_WANTED}`)
  return text
}
const DIGEST_CHARACTERS_MIN = 40
/** MD5 in hex; MD5 and SHA-1 in base64, recognised by length and padding. */
const SHORT_DIGEST = /^([0-9a-f]{32,}|[\w+/-]{22}==|[\w+/-]{27}=)$/i

/** @throws ApiError BAD_REQUEST when the keys of a call have more roles and permissions together than one call may have. */
export function requireFewLinks(
  keys: readonly { roles?: readonly string[]; permissions?: readonly string[] }[],
  path: string,
): void {
  const links = keys.reduce(
    (sum, { roles = [], permissions = [] }) => sum + roles.length + permissions.length,
    0,
  )
  if (links > LINKS_MAX)
    throw badRequest(
      `${path}: the keys of a call may have ${LINKS_MAX} roles and permissions in all, these have ${links}`,
    )
}
