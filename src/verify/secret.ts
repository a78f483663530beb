import { encodeBase58 } from '../lib/base58.ts'
import { cutText } from '../lib/cut-text.ts'

export type Secret = {
  /** The whole text, shown once. */
  key: string
  /** The visible beginning, by which people recognise the key. */
  start: string
  hash: string
}

/**
 * The text of a new key: base58 of a version byte, a length byte and `byteLength` random bytes, after `prefix_` if there is
 * a prefix. `start` is the request's prefix, the underscore and four characters; it never includes a keyspace's default
 * prefix.
 * @param byteLength 16 to 255.
 */
export function makeSecret({
  prefix,
  defaultPrefix,
  byteLength,
}: {
  prefix: string | undefined
  defaultPrefix: string | null
  byteLength: number
}): Secret {
  const bytes = new Uint8Array(2 + byteLength)
  bytes[0] = KEY_VERSION
  bytes[1] = byteLength
  crypto.getRandomValues(bytes.subarray(2))
  const usedPrefix = prefix ?? defaultPrefix ?? ''
  const key = usedPrefix === '' ? encodeBase58(bytes) : `${usedPrefix}_${encodeBase58(bytes)}`
  return { key, start: cutText(key, (prefix ?? '').length + 5), hash: hashKey(key) }
}

/** Root keys read `tollgate_<base58>`. */
export const makeRootSecret = (): Secret =>
  makeSecret({ prefix: 'tollgate', defaultPrefix: null, byteLength: 16 })

const KEY_VERSION = 1

/** SHA-256 of the whole text in UTF-8, standard base64 with padding: variant `sha256_base64`. */
export const hashKey = (key: string): string => Bun.SHA256.hash(key, 'base64')

/** The key in an Authorization header: the text after `Bearer ` (in any case, RFC 9110 11.1), or the whole value. */
export const bearer = (authorization: string): string =>
  /^bearer /i.test(authorization) ? authorization.slice('bearer '.length) : authorization
