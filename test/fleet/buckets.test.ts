import { expect, test } from 'bun:test'
import { bucketOf, bucketsOfShard, slotOf, TAGS } from '../../src/fleet/buckets.ts'
import { shardOf } from '../../src/limiter/threads/shard-ranges.ts'

/** Masters own equal ranges of slots, so a tag near the edge of its part would move when one joins. */
test('the slot of each tag is the middle of its sixteenth, so that 1 to 16 masters share the buckets evenly', () => {
  expect(hashSlotOf('123456789')).toBe(0x31c3) // the check value of CRC16/XMODEM, below 16384
  expect(TAGS.map(hashSlotOf)).toEqual(TAGS.map((_, bucket) => slotOf(bucket)))
  for (let masters = 1; masters <= 16; masters++) {
    const buckets = new Array<number>(masters).fill(0)
    for (const tag of TAGS) {
      const master = Math.floor((hashSlotOf(tag) * masters) / 16384)
      buckets[master] = (buckets[master] ?? 0) + 1
    }
    expect(Math.max(...buckets) - Math.min(...buckets), `${masters} masters`).toBeLessThanOrEqual(1)
  }
})

test('a cell belongs to the bucket of its leading bits', () => {
  expect([0, 0x0fffffff, 0x10000000, 0x7fffffff, 0x80000000 | 0, -1].map((h0) => bucketOf(h0, 16))).toEqual([
    0, 0, 1, 7, 8, 15,
  ])
  expect([0, 0x7fffffff, -1].map((h0) => bucketOf(h0, 1))).toEqual([0, 0, 0])
})

test('a shard speaks to the buckets of its cells and to no others', () => {
  expect(bucketsOfShard(0, 2, 16)).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
  expect(bucketsOfShard(1, 3, 16)).toEqual([5, 6, 7, 8, 9, 10])
  expect(bucketsOfShard(40, 64, 16)).toEqual([10])
  for (const shards of [1, 2, 3, 5, 16, 17, 64])
    for (const buckets of [1, 16]) {
      const seen = Array.from({ length: shards }, () => new Set<number>())
      for (let i = 0; i < 4096; i++) {
        const h0 = (i * 2 ** 20) | 0
        seen[shardOf(h0, shards)]?.add(bucketOf(h0, buckets))
      }
      expect(seen.map((set) => [...set])).toEqual(
        seen.map((_, shard) => bucketsOfShard(shard, shards, buckets)),
      )
    }
})

/** The slot of a key with that tag: CRC16/XMODEM modulo 16384, as the cluster specification has it. */
function hashSlotOf(tag: string): number {
  let crc = 0
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8
    for (let i = 0; i < 8; i++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff
  }
  return crc % 16384
}
