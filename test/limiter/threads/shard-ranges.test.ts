import { expect, test } from 'bun:test'
import { firstHashOf, shardOf } from '../../../src/limiter/threads/shard-ranges.ts'

test('shards own equal ranges without gaps, the last hash included', () => {
  for (const shards of [1, 2, 3, 7, 64]) {
    expect(shardOf(0, shards)).toBe(0)
    expect(shardOf(-1, shards)).toBe(shards - 1) // 0xffffffff
    const owned = Array<number>(shards).fill(0)
    for (let i = 0; i < 64_000; i++) {
      const shard = shardOf(Math.floor((i / 64_000) * 2 ** 32) | 0, shards)
      owned[shard] = (owned[shard] ?? 0) + 1
    }
    for (let shard = 1; shard < shards; shard++) {
      const first = firstHashOf(shard, shards)
      expect([shardOf(first | 0, shards), shardOf((first - 1) | 0, shards)]).toEqual([shard, shard - 1])
    }
    expect(Math.max(...owned) - Math.min(...owned)).toBeLessThanOrEqual(1)
  }
})
