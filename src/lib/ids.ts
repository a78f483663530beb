import { BASE58_ALPHABET, encodeBase58 } from './base58.ts'

/** Prefixes of ids, one for each kind of thing. */
export type IdPrefix =
  | 'api'
  | 'erased'
  | 'id'
  | 'key'
  | 'ks'
  | 'log'
  | 'perm'
  | 'req'
  | 'rl'
  | 'rlns'
  | 'rlor'
  | 'role'
  | 'vdk'
  | 'watch'
  | 'ws'

/** Start of the ids' time, Unix seconds. It keeps ids at 16 characters until 2051. */
const ID_EPOCH_SECONDS = 1_700_000_000

/**
 * A new id: `<prefix>_` and base58 of 4 bytes of time (seconds, big-endian) and 8 random bytes. So ids of one kind sort by
 * the second of their creation, and pages by id are chronological.
 *
 * Every request needs ids, so base58 is divided out once a second instead of for each id. All ids of a second share their
 * first 4 bytes. 58^10 fits 42 times into the 2^64 numbers of the other bytes, so the first six characters are one of 42
 * texts computed each second, and the last ten are random: 63.8 random bits of 64.
 */
export function newId(prefix: IdPrefix, nowMs: number = Date.now()): string {
  const seconds = Math.floor(nowMs / 1000)
  if (seconds !== headsOfSecond) {
    heads = headsOf(seconds - ID_EPOCH_SECONDS)
    headsOfSecond = seconds
  }
  if (randomAt + NUMBERS_PER_ID > randomPool.length) {
    crypto.getRandomValues(randomPool)
    randomAt = 0
  }
  // In range: the pool was refilled above, and each index is a remainder.
  let text = `${prefix}_${heads[drawBelow(heads.length)]}`
  for (let pair = 0; pair < 5; pair++) text += PAIRS[drawBelow(PAIRS.length)]
  return text
}

/**
 * The id of a request, of the same form and equally unique. It protects nothing, so all but the last two characters change
 * only when all endings have been used, or after a second. Its time may be a second old.
 * @param atMs `performance.now()`.
 */
export function newRequestId(atMs = performance.now()): string {
  if (requestPair === PAIRS.length || atMs >= requestStemEndsAtMs) {
    requestStem = newId('req').slice(0, -2)
    requestStemEndsAtMs = atMs + 1000
    requestPair = 0
  }
  return requestStem + PAIRS[requestPair++]
}
let requestStem = ''
let requestStemEndsAtMs = 0
let requestPair = 0

/** Ids created in the second of `atMs` or later do not sort before this. Empty for times before the first id. */
export function firstIdAt(prefix: IdPrefix, atMs: number): string {
  const seconds = Math.floor(atMs / 1000) - ID_EPOCH_SECONDS
  if (seconds <= 0) return ''
  const bytes = new Uint8Array(12)
  new DataView(bytes.buffer).setUint32(0, Math.min(seconds, 0xffffffff))
  return `${prefix}_${encodeBase58(bytes)}`
}

/**
 * Drawn in bulk: a system call for each id would be measurable. With 32 bits, a remainder prefers no value by more than 1
 * in a million.
 */
const randomPool = new Uint32Array(1200)
const NUMBERS_PER_ID = 6
let randomAt = randomPool.length
const drawBelow = (bound: number): number => (randomPool[randomAt++] as number) % bound // callers keep the pool filled

/** All pairs of base58 characters. */
const PAIRS = [...BASE58_ALPHABET].flatMap((first) => [...BASE58_ALPHABET].map((second) => first + second))

let headsOfSecond = -1
let heads: string[] = []

/** First six characters whose every ending stays within the second. */
function headsOf(seconds: number): string[] {
  const tail = 58n ** 10n
  const first = (BigInt(seconds) << 64n) / tail + 1n
  const last = (BigInt(seconds + 1) << 64n) / tail - 1n
  const texts: string[] = []
  for (let head = first; head <= last; head++) {
    let text = ''
    for (let rest = head; rest > 0n; rest /= 58n) text = BASE58_ALPHABET.charAt(Number(rest % 58n)) + text
    texts.push(text)
  }
  return texts
}

declare const isScoped: unique symbol
/**
 * The workspace that a call may access. Only `api/root-keys/authorize.ts` makes one, from a verified root key, and every
 * store function requires one. So the type checker makes sure that no endpoint reaches data without an actor.
 */
export type WorkspaceId = string & { readonly [isScoped]: true }
