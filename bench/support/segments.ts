import { DAY_MS } from '../../src/lib/clock.ts'
import { CELLS_PER_SEGMENT, packSegment } from '../../src/limiter/flush/segment.ts'
import { WindowStore } from '../../src/limiter/flush/store.ts'
import { CellBatch } from '../../src/limiter/table/cell-batch.ts'

/**
 * Gives a Postgres what a server gives it that flushes so many windows a second, while the work is done: segments of as many
 * that changed and as many that did not, evenly over half of each second; those of the second before are deleted. It is sent
 * from here, where a server would do it on its own core.
 * @param databaseUrl Of a migrated database.
 * @returns also how many changed windows a second were written.
 */
export async function whileWriting<T>(
  databaseUrl: string,
  windowsPerSecond: number,
  work: () => Promise<T>,
): Promise<{ result: T; flushed: number }> {
  const store = new WindowStore({ kind: 'url', url: databaseUrl })
  const nodeId = `bench_${crypto.randomUUID()}`
  const segment = packSegment([randomCells()])
  const segments = Math.ceil((2 * windowsPerSecond) / CELLS_PER_SEGMENT)
  let isOver = false
  let written = 0
  const write = async () => {
    for (let pass = 1; !isOver; pass++) {
      const began = performance.now()
      for (let i = 1; i <= segments && !isOver; i++) {
        await store.writeSegment(nodeId, pass, segment)
        written += CELLS_PER_SEGMENT / 2
        await until(began + (i * WALK_MS) / segments)
      }
      while (!(await store.deleteSuperseded({ nodeId, hashes: ALL, pass, rowsMax: 50 })));
      await until(began + SECOND_MS)
    }
  }
  const started = performance.now()
  const writing = write()
  writing.catch(() => {}) // awaited below
  try {
    const result = await work()
    isOver = true
    await writing
    return { result, flushed: (written * SECOND_MS) / (performance.now() - started) }
  } finally {
    isOver = true
    await store.close()
  }
}

const SECOND_MS = 1000
const WALK_MS = SECOND_MS / 2
const ALL = { first: 0, last: 2 ** 32 - 1 }

/** @param atMs As `performance.now` tells it. */
const until = (atMs: number) => Bun.sleep(Math.max(0, atMs - performance.now()))

/** What hashes look like: it does not compress. */
function randomCells(): CellBatch {
  const cells = new CellBatch(CELLS_PER_SEGMENT)
  const words = crypto.getRandomValues(new Int32Array(4 * CELLS_PER_SEGMENT))
  const word = (at: number) => words[at] as number // in range
  for (let at = 0; at < words.length; at += 4)
    cells.add(word(at), word(at + 1), word(at + 2), word(at + 3), Date.now() + DAY_MS, 1)
  return cells
}
