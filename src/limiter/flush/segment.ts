import type { CellBatch } from '../table/cell-batch.ts'
import { UNKNOWN_OWNER } from '../table/owners.ts'

/** Cells packed for a row of `ratelimit_segments`. */
export type Segment = {
  /** Lowest and highest `h0` of its cells, unsigned. */
  firstHash: number
  lastHash: number
  /** End of the last of its windows, Unix ms. */
  endsAt: number
  /** {@link CELL_BYTES} for each cell, as hex digits: a copy, as a write that was given up may still be carried out. */
  cells: string
}

/** Big-endian: a name of four words, the owner in 16 bits, the end (Unix ms) in 48 bits, the count in 64 bits. */
export const CELL_BYTES = 32
/** How the cells of a segment are packed. Format 0, before owners: no owner, an end of 64 bits, a count of 32. */
export const SEGMENT_FORMAT = 1
const CELL_BYTES_BEFORE = 28

/** @param batches At least one cell, at most {@link CELLS_PER_SEGMENT} in all of them. */
export function packSegment(batches: readonly CellBatch[]): Segment {
  let firstHash = 0xffffffff
  let lastHash = 0
  let endsAt = 0
  let at = 0
  for (const { names, ends, used, owners, count } of batches)
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
      packing.setUint16(at + 16, owners[i] as number) // in range
      packing.setUint16(at + 18, Math.floor(endMs / 2 ** 32))
      packing.setUint32(at + 20, endMs >>> 0)
      packing.setUint32(at + 24, Math.floor((used[i] as number) / 2 ** 32)) // in range
      packing.setUint32(at + 28, (used[i] as number) >>> 0) // in range
    }
  return { firstHash, lastHash, endsAt, cells: packed.toString('hex', 0, at) }
}

/** Whether a segment can be unpacked here. One of a newer release stays as it is. */
export const isKnownFormat = (format: number): boolean => format === 0 || format === SEGMENT_FORMAT

/** @throws Error when it is not made of whole cells of a known format. */
export function unpackSegment(
  cells: Uint8Array,
  each: (h0: number, h1: number, h2: number, h3: number, endMs: number, used: number, owner: number) => void,
  format: number = SEGMENT_FORMAT,
): void {
  if (!isKnownFormat(format)) throw new Error(`a segment of windows has format ${format}, of a newer version`)
  const cellBytes = format === 0 ? CELL_BYTES_BEFORE : CELL_BYTES
  if (cells.length % cellBytes !== 0) throw new Error(`a segment of windows has ${cells.length} bytes`)
  const view = new DataView(cells.buffer, cells.byteOffset, cells.byteLength)
  for (let at = 0; at < cells.length; at += cellBytes) {
    const isOld = format === 0
    each(
      view.getInt32(at),
      view.getInt32(at + 4),
      view.getInt32(at + 8),
      view.getInt32(at + 12),
      (isOld ? view.getUint32(at + 16) : view.getUint16(at + 18)) * 2 ** 32 + view.getUint32(at + 20),
      isOld ? view.getInt32(at + 24) : view.getUint32(at + 24) * 2 ** 32 + view.getUint32(at + 28),
      isOld ? UNKNOWN_OWNER : view.getUint16(at + 16),
    )
  }
}

export const CELLS_PER_SEGMENT = 1_000
const packed = Buffer.alloc(CELL_BYTES * CELLS_PER_SEGMENT)
const packing = new DataView(packed.buffer, packed.byteOffset, packed.byteLength)
