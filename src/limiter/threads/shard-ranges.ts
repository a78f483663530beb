/**
 * The shard that owns a hash: each owns an equal range of `h0`, so that it can restore its cells from Postgres by a
 * range scan whatever the number of shards was before.
 */
export function shardOf(h0: number, shards: number): number {
  return Math.floor(((h0 >>> 0) * shards) / 2 ** 32)
}

/** The least `h0`, as an unsigned number, of a shard's range; for the shard after the last: 2^32. */
export function firstHashOf(shard: number, shards: number): number {
  return Math.ceil((shard * 2 ** 32) / shards)
}
