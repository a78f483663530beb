import { BASE58_ALPHABET, encodeBase58 } from './base58.ts'

/** What an id names, as its prefix. One prefix a kind of record. */
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
  | 'ws'

/** Ids count seconds from here (Unix seconds), so that their text keeps 16 characters until 2051. */
const ID_EPOCH_SECONDS = 1_700_000_000

/**
 * A new id: `<prefix>_` and base58 of 4 bytes of time (seconds, big-endian) and 8 random bytes.
 * Ids of one kind therefore sort by the second of their creation, which makes pages ordered by id chronological.
 *
 * Every request needs one, so the division that base58 means is done once a second, not once an id. All ids of a second
 * share its 4 bytes; 58^10 goes 42 times into the 2^64 numbers these leave open. So the first six characters are one of
 * 42 texts worked out per second, the last ten are drawn: 63.8 random bits of the 64.
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
 * The id of a request, of the same form and as unlikely to come twice. Every request needs one and nobody is kept out by
 * it, so all but the last two characters are drawn anew only once they have all been used, or a second is over. Its time
 * may be a second old.
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

/** What no id made in the second of `atMs` or later sorts before. Empty for times before the first id. */
export function firstIdAt(prefix: IdPrefix, atMs: number): string {
  const seconds = Math.floor(atMs / 1000) - ID_EPOCH_SECONDS
  if (seconds <= 0) return ''
  const bytes = new Uint8Array(12)
  new DataView(bytes.buffer).setUint32(0, Math.min(seconds, 0xffffffff))
  return `${prefix}_${encodeBase58(bytes)}`
}

/** Random numbers are drawn in bulk: a system call for each id would show. 32 bits, so a remainder favours none by more than 1 in a million. */
const randomPool = new Uint32Array(1200)
const NUMBERS_PER_ID = 6
let randomAt = randomPool.length
const drawBelow = (bound: number): number => (randomPool[randomAt++] as number) % bound // the caller keeps it filled

/** All texts of two base58 characters. */
const PAIRS = [...BASE58_ALPHABET].flatMap((first) => [...BASE58_ALPHABET].map((second) => first + second))

let headsOfSecond = -1
let heads: string[] = []

/** The first six characters that every ending keeps inside the second. */
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
 * The workspace a call may act in. Only `api/root-keys/authorize.ts` mints one, from a verified root key, and every store
 * function of a feature asks for it: so no route reaches data without an actor, by its types.
 */
export type WorkspaceId = string & { readonly [isScoped]: true }
