/**
 * A SHA-256 in the form used for look-ups: standard base64 with padding. Also accepts 64 hex digits, base64url, and base64
 * without padding: they mean the same 32 bytes, but only one spelling is ever found.
 * @returns null when the text is not a spelling of 32 bytes.
 */
export function readKeyHash(text: string): string | null {
  const trimmed = text.trim()
  if (/^[0-9a-f]{64}$/i.test(trimmed))
    return btoa(trimmed.replace(/../g, (byte) => String.fromCharCode(Number.parseInt(byte, 16))))
  // 43 digits of six bits are 258 bits. The last two are not part of the hash, and are zero in the form used for look-ups.
  if (/^[\w+/-]{43}=?$/.test(trimmed))
    return btoa(atob(trimmed.slice(0, 43).replaceAll('-', '+').replaceAll('_', '/')))
  return null
}

/** The message for a text that {@link readKeyHash} refuses. It does not repeat the text, which may be the key itself. */
export const KEY_HASH_WANTED = 'must be the SHA-256 of the key: 44 characters of base64, or 64 hex digits'
