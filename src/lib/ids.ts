import { encodeBase58 } from './base58.ts'

/** What an id names, as its prefix. One prefix a kind of record. */
export type IdPrefix =
  | 'api'
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
 */
export function newId(prefix: IdPrefix, nowMs: number = Date.now()): string {
  const seconds = Math.floor(nowMs / 1000) - ID_EPOCH_SECONDS
  if (randomAt + 8 > randomPool.length) {
    crypto.getRandomValues(randomPool)
    randomAt = 0
  }
  idBytes[0] = seconds >>> 24
  idBytes[1] = seconds >>> 16
  idBytes[2] = seconds >>> 8
  idBytes[3] = seconds
  for (let i = 0; i < 8; i++) idBytes[4 + i] = randomPool[randomAt + i] as number // the pool holds 8 more
  randomAt += 8
  return `${prefix}_${encodeBase58(idBytes)}`
}

// Random bytes are drawn in bulk: every request needs an id, and a system call for each would show.
const randomPool = new Uint8Array(4096)
let randomAt = randomPool.length
const idBytes = new Uint8Array(12)

declare const isScoped: unique symbol
/**
 * The workspace a call may act in. Only `root-keys/authorize.ts` mints one, from a verified root key, and every store
 * function of a feature asks for it: so no route reaches data without an actor, by its types.
 */
export type WorkspaceId = string & { readonly [isScoped]: true }
