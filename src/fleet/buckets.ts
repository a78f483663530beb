/**
 * Cells by buckets. A message carries entries of one bucket, and all its keys have the bucket's tag, so that a Redis Cluster
 * has them in one slot. Few buckets make large messages; several spread over the masters.
 */

/** In braces a part of each key. The slot of tag i is the middle of the i-th sixteenth: 1 to 16 masters share evenly. */
export const TAGS = [
  'ms3',
  'mws',
  'pt6',
  'arf',
  'mb1',
  'eoi',
  'pe4',
  'acd',
  'gxm',
  'ou5',
  'c0h',
  'ky8',
  'gio',
  'od7',
  'ceb',
  'rc2',
] as const

/** The bucket of a cell, by the leading bits of its name, so that a shard has few. @param buckets A power of two. */
export function bucketOf(h0: number, buckets: number): number {
  return Math.floor(((h0 >>> 0) * buckets) / 2 ** 32)
}

/** The buckets of a shard's cells: whole ones, or its part of one. */
export function bucketsOfShard(shard: number, shards: number, buckets: number): number[] {
  const first = Math.floor((shard * buckets) / shards)
  const last = Math.ceil(((shard + 1) * buckets) / shards) - 1
  return Array.from({ length: last - first + 1 }, (_, i) => first + i)
}

/** The slot in a Redis Cluster of a bucket's keys. */
export const slotOf = (bucket: number) => 1024 * bucket + 512
