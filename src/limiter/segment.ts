import type { CellBatch } from './cell-batch.ts'

/** Cells packed for a row of `ratelimit_segments`. */
export type Segment = {
  /** Lowest and highest `h0` of its cells, unsigned. */
  firstHash: number
  lastHash: number
  /** End of the last of its windows, Unix ms. */
  endsAt: number
  /** {@link CELL_BYTES} for each cell, as hex digits: of what is given up halfway nothing may change any more. */
  cells: string
}

/** A name of four words, an end in Unix ms as a 64-bit integer, a count; big-endian, as SQL would take it apart. */
export const CELL_BYTES = 28

/** @param batches At least one cell, at most {@link CELLS_PER_SEGMENT} in all of them. */
export function packSegment(batches: readonly CellBatch[]): Segment {
  let firstHash = 0xffffffff
  let lastHash = 0
  let endsAt = 0
  let at = 0
  for (const { names, ends, used, count } of batches)
    for (let i = 0; i < count; i++, at += CELL_BYTES) {
      const h0 = (names[4 * i] as number) >>> 0 // i is within the batch, here and below
      const endMs = ends[i] as number // in range
      if (h0 < firstHash) firstHash = h0
      if (h0 > lastHash) lastHash = h0
      if (endMs > endsAt) endsAt = endMs
      packing.setUint32(at, h0)
      packing.setInt32(at + 4, names[4 * i + 1] as number) // in range
      packing.setInt32(at + 8, names[4 * i + 2] as number) // in range
      packing.setInt32(at + 12, names[4 * i + 3] as number) // in range
      packing.setUint32(at + 16, Math.floor(endMs / 2 ** 32))
      packing.setUint32(at + 20, endMs >>> 0)
      packing.setInt32(at + 24, used[i] as number) // in range
    }
  return { firstHash, lastHash, endsAt, cells: packed.toString('hex', 0, at) }
}

/** @throws Error when it is not made of whole cells. */
export function unpackSegment(
  cells: Uint8Array,
  each: (h0: number, h1: number, h2: number, h3: number, endMs: number, used: number) => void,
): void {
  if (cells.length % CELL_BYTES !== 0) throw new Error(`a segment of windows has ${cells.length} bytes`)
  const view = new DataView(cells.buffer, cells.byteOffset, cells.byteLength)
  for (let at = 0; at < cells.length; at += CELL_BYTES)
    each(
      view.getInt32(at),
      view.getInt32(at + 4),
      view.getInt32(at + 8),
      view.getInt32(at + 12),
      view.getUint32(at + 16) * 2 ** 32 + view.getUint32(at + 20),
      view.getInt32(at + 24),
    )
}

export const CELLS_PER_SEGMENT = 1_000
const packed = Buffer.alloc(CELL_BYTES * CELLS_PER_SEGMENT)
const packing = new DataView(packed.buffer, packed.byteOffset, packed.byteLength)
