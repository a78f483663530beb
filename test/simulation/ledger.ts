import type { AnySql } from '../../src/db/connect.ts'
import type { Outcome, UsageBatch } from '../../src/usage/batch.ts'
import { countBatch } from '../../src/usage/rollup.ts'
import type { RatelimitEvent, VerificationEvent } from '../../src/usage/usage-accumulator.ts'
import { type UsageCells, usageCellsOf } from './postgres.ts'

/** Usage that one life of a server recorded, compared with what the database has counted of it. */
export class UsageLedger {
  readonly recorded: UsageCells = new Map()
  private readonly counted: UsageCells = new Map()
  recordedTotal = 0
  countedTotal = 0

  addVerification({ keyId, atMs, outcome }: VerificationEvent): void {
    this.add(`${keyId} ${hourOf(atMs)}`, OUTCOMES.indexOf(outcome))
  }

  addRatelimit({ identifier, atMs, passed }: RatelimitEvent): void {
    this.add(`${identifier} ${hourOf(atMs)}`, passed ? 7 : 8)
  }

  /** @returns what is wrong, or null. */
  count(cells: UsageCells): string | null {
    for (const [name, counts] of cells) {
      const known = countsOf(this.counted, name)
      const recorded = this.recorded.get(name)
      for (let i = 0; i < COLUMNS; i++) {
        known[i] = (known[i] ?? 0) + (counts[i] ?? 0)
        this.countedTotal += counts[i] ?? 0
        if ((known[i] ?? 0) > (recorded?.[i] ?? 0))
          return `usage: ${name} was decided ${recorded?.[i] ?? 0} times and counted ${known[i]} times (column ${i})`
      }
    }
    return null
  }

  /** @param waiting Batches in the data directory that have not been counted. @returns what is missing, or null. */
  missing(waiting: readonly UsageCells[]): string | null {
    for (const [name, recorded] of this.recorded)
      for (let i = 0; i < COLUMNS; i++) {
        let there = this.counted.get(name)?.[i] ?? 0
        for (const cells of waiting) there += cells.get(name)?.[i] ?? 0
        if (there !== (recorded[i] ?? 0))
          return `usage: ${name} was decided ${recorded[i]} times, ${there} are counted or kept (column ${i})`
      }
    return null
  }

  private add(name: string, column: number): void {
    const counts = countsOf(this.recorded, name)
    counts[column] = (counts[column] ?? 0) + 1
    this.recordedTotal++
  }
}

function countsOf(cells: UsageCells, name: string): number[] {
  let counts = cells.get(name)
  if (counts === undefined) {
    counts = [0, 0, 0, 0, 0, 0, 0, 0, 0]
    cells.set(name, counts)
  }
  return counts
}

/** The counts of a batch, read from the statement that sends it. */
export function cellsOfBatch(batch: UsageBatch): UsageCells {
  let cells: UsageCells = new Map()
  const listen = (_: TemplateStringsArray, ...values: unknown[]) => {
    cells = usageCellsOf(values)
    return Promise.resolve([])
  }
  void countBatch(listen as unknown as AnySql, batch, 0) // makes its one call before it waits
  return cells
}

const hourOf = (atMs: number) => Math.floor(atMs / 3_600_000) * 3_600_000

const COLUMNS = 9
/** In the order of the statement's columns; two more for limits. */
const OUTCOMES: Outcome[] = [
  'VALID',
  'RATE_LIMITED',
  'EXPIRED',
  'DISABLED',
  'FORBIDDEN',
  'USAGE_EXCEEDED',
  'INSUFFICIENT_PERMISSIONS',
]
