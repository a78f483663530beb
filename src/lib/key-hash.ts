/**
 * The SHA-256 of a key in the one form in which it is looked up: standard base64 with padding. Also read are 64 hex digits,
 * base64url, and base64 without its padding: all of them name the same 32 bytes, and only one spelling would ever match.
 * @returns null when the text is no spelling of 32 bytes.
 */
export function readKeyHash(text: string): string | null {
  const trimmed = text.trim()
  if (/^[0-9a-f]{64}$/i.test(trimmed)) return Buffer.from(trimmed, 'hex').toString('base64')
  // 43 digits of six bits are 258: the last two are no part of the hash, and are zero in what we look up.
  if (/^[\w+/-]{43}=?$/.test(trimmed)) return Buffer.from(trimmed, 'base64').toString('base64')
  return null
}

/** What to say of a text that {@link readKeyHash} refuses. Not the text: it may be the key itself. */
export const KEY_HASH_WANTED = 'must be the SHA-256 of the key: 44 characters of base64, or 64 hex digits'
