import { expect, test } from 'bun:test'
import { type Segment, unpackSegment } from '../../../src/limiter/flush/segment.ts'
import { replaySpills } from '../../../src/limiter/flush/spilled-windows.ts'

const NOW = 1_000_000

/** Replays one file. */
async function replay(kind: string, value: unknown, segments: { id: number; generation: number }[] = []) {
  const written: { nodeId: string; generation: number; segment: Segment }[] = []
  let isDone = false
  const store = {
    segmentsMax: 2,
    writeSegments: async (nodeId: string, generation: number, segments: readonly Segment[]) =>
      void written.push(...segments.map((segment) => ({ nodeId, generation, segment }))),
    list: async () => [
      { nodeId: 'node_other', rows: 0, segments: [{ id: 9, generation: 99, bytes: 32 }] },
      { nodeId: 'node_old', rows: 3, segments: segments.map((segment) => ({ ...segment, bytes: 32 })) },
    ],
  }
  const file = { value, done: () => (isDone = true) }
  await replaySpills(store, { read: (wanted) => (wanted === kind ? [file] : []) }, NOW)
  return { written, isDone }
}

const used = (segment: Segment) => {
  const counts: number[][] = []
  unpackSegment(Buffer.from(segment.cells, 'hex'), (h0, h1, h2, h3, endMs, count, owner) =>
    counts.push([h0, h1, h2, h3, endMs, count, owner]),
  )
  return counts
}

/** An earlier generation could be deleted by a statement that the stopped server sent. */
test('a spill file of releases up to 0.1 becomes segments of the last generation of its node', async () => {
  const digits = (i: number) => `ffffffff00000001${'0'.repeat(8)}${i.toString(16).padStart(8, '0')}`
  const indexes = Array.from({ length: 2_001 }, (_, i) => i)
  const old = {
    nodeId: 'node_old',
    cells: indexes.map(digits).join(''),
    ends: indexes.map((i) => NOW + 1 + i),
    used: indexes.map((i) => 2 ** 40 + i),
  }
  const lists = [
    { id: 1, generation: 3 },
    { id: 2, generation: 7 },
    { id: 3, generation: 6 },
  ]
  const { written, isDone } = await replay('windows', old, lists)
  expect(written.map(({ nodeId, generation }) => [nodeId, generation])).toEqual(
    Array(3).fill(['node_old', 7]),
  )
  expect(written.flatMap(({ segment }) => used(segment))).toEqual(
    indexes.map((i) => [-1, 1, 0, i, NOW + 1 + i, 2 ** 40 + i, 0]),
  )
  expect(isDone).toBe(true)
  const owned = { ...old, owners: indexes }
  expect(
    (await replay('windows', owned)).written
      .flatMap(({ segment }) => used(segment))
      .map(([, , , , , , owner]) => owner),
  ).toEqual(indexes)
  expect((await replay('windows', { ...old, ends: indexes.map(() => NOW) })).written).toEqual([])
})

/** Else a start after a way back to an older release would take it for read. */
test('a spill file of a newer release is left where it is, and the start goes on', async () => {
  const newer = { nodeId: 'node_old', generation: 1, format: 2, columns: [] }
  expect(await replay('segments', newer)).toEqual({ written: [], isDone: false })
})

test('a spill file of an unknown shape stops the start and is left where it is', async () => {
  for (const [kind, value] of [
    ['segments', {}],
    ['windows', { nodeId: 'n', cells: '' }],
  ] as const)
    expect(replay(kind, value)).rejects.toThrow('unknown shape')
})
