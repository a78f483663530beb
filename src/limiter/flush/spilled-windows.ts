import type { Spills } from '../../data-dir/spill.ts'
import { log, logUnknownFormat } from '../../log.ts'
import { CellBatch } from '../table/cell-batch.ts'
import { UNKNOWN_OWNER } from '../table/owners.ts'
import { CELL_BYTES, CELLS_PER_SEGMENT, packSegment, SEGMENT_FORMAT, type Segment } from './segment.ts'
import type { WindowStore } from './store.ts'

/** The kind of spill files that hold windows. */
export const SPILL_KIND = 'segments'

/** What a spill file holds: segments of one node that a stop could not write. */
export type SpilledWindows = { nodeId: string; generation: number; format: number; segments: Segment[] }

/**
 * Writes the windows that earlier stops left in the data dir. Twice is harmless: counts are absolute.
 * @throws Error when Postgres is not available, or a file has an unknown shape.
 */
export async function replaySpills(
  store: Pick<WindowStore, 'segmentsMax' | 'writeSegments' | 'list'>,
  spills: Pick<Spills, 'read'>,
  nowMs: number,
): Promise<void> {
  const send = async ({ nodeId, generation, segments }: SpilledWindows, done: () => void) => {
    const open = segments.filter(({ endsAt }) => endsAt > nowMs)
    for (let from = 0; from < open.length; from += store.segmentsMax)
      await store.writeSegments(nodeId, generation, open.slice(from, from + store.segmentsMax))
    done()
    log('info', 'spilled_windows_sent', 'rate limit windows of a spill file were written to the database', {
      windows: open.reduce((sum, { cells }) => sum + cells.length / (2 * CELL_BYTES), 0),
    })
  }
  for (const { value, done } of spills.read(SPILL_KIND)) {
    const spill = checkSpill(value)
    if (spill !== null) await send(spill, done)
  }
  for (const { value, done } of spills.read(OLD_SPILL_KIND)) {
    const spill = checkOldSpill(value)
    const nodes = await store.list(ALL_HASHES, nowMs)
    const written = nodes.find(({ nodeId }) => nodeId === spill.nodeId)?.segments ?? []
    // Not an earlier generation: a delete that the stopped server sent may still be carried out.
    const generation = written.reduce((last, { generation }) => Math.max(last, generation), 0)
    await send({ nodeId: spill.nodeId, generation, format: SEGMENT_FORMAT, segments: packOld(spill) }, done)
  }
}

/** @returns null when it is of a newer release, whose next start sends it. */
function checkSpill(value: unknown): SpilledWindows | null {
  const spill = value as SpilledWindows // its kind says so, and the format is checked
  if (Number.isInteger(spill.format) && spill.format > SEGMENT_FORMAT) {
    logUnknownFormat('spill file of rate limit windows', spill.format)
    return null
  }
  if (spill.format !== SEGMENT_FORMAT || !Array.isArray(spill.segments))
    throw new Error('a spill file of rate limit windows has an unknown shape')
  return spill
}

/**
 * Spill files of releases up to 0.1: 32 hex digits of name for each window, and a list for each other field.
 * To be removed after one release: docs/decisions/0010.
 */
const OLD_SPILL_KIND = 'windows'
type OldSpill = { nodeId: string; cells: string; ends: number[]; used: number[]; owners?: number[] }
const NAME_DIGITS = 32
const ALL_HASHES = { first: 0, last: 2 ** 32 - 1 }

function packOld({ cells, ends, used, owners }: OldSpill): Segment[] {
  const segments: Segment[] = []
  const batch = new CellBatch(CELLS_PER_SEGMENT)
  for (const [i, endMs] of ends.entries()) {
    const word = (at: number) =>
      Number.parseInt(cells.slice(NAME_DIGITS * i + 8 * at, NAME_DIGITS * i + 8 * at + 8), 16) | 0
    batch.add(word(0), word(1), word(2), word(3), endMs, used[i] ?? 0, owners?.[i] ?? UNKNOWN_OWNER)
    if (batch.hasRoom(1) && i < ends.length - 1) continue
    segments.push(packSegment([batch]))
    batch.count = 0
  }
  return segments
}

function checkOldSpill(value: unknown): OldSpill {
  const spill = value as OldSpill // checked here
  const count = Array.isArray(spill.ends) ? spill.ends.length : -1
  if (spill.cells?.length === NAME_DIGITS * count && spill.used?.length === count) return spill
  throw new Error('a spill file of rate limit windows has an unknown shape')
}
