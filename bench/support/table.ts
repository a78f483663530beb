import { cpus } from 'node:os'

/** What a figure was measured on. */
export const machine = (): string =>
  `${cpus()[0]?.model ?? 'unknown processor'}, ${cpus().length} cores, Bun ${Bun.version}`

export const median = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

/** Rows under their headings, numbers to the right. */
export function printTable(headings: string[], rows: (string | number)[][]): void {
  const cells = [headings, ...rows.map((row) => row.map(show))]
  const widths = headings.map((_, column) => Math.max(...cells.map((row) => (row[column] ?? '').length)))
  for (const row of cells)
    console.log(
      `  ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  ')}`,
    )
}

function show(value: string | number): string {
  if (typeof value === 'string') return value
  if (value >= 1000) return Math.round(value).toLocaleString('en')
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)
}
