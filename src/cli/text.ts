/** Rows in columns as wide as their widest cell, numbers to the right. */
export function tableText(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => String(row[column] ?? '').length)),
  )
  const line = (cells: readonly (string | number)[]) =>
    cells
      .map((cell, column) => {
        const width = widths[column] ?? 0
        return typeof cell === 'number' ? String(cell).padStart(width) : cell.padEnd(width)
      })
      .join('  ')
      .trimEnd()
  return [line(head), ...rows.map(line)].join('\n')
}

/** One character a value, as high as it is beside the largest. */
export function chartText(values: readonly number[]): string {
  const max = Math.max(1, ...values)
  return values
    .map((value) => (value === 0 ? '·' : (BARS[Math.ceil((value / max) * BARS.length) - 1] ?? '')))
    .join('')
}

const BARS = '▁▂▃▄▅▆▇█'

/** Milliseconds since the epoch as a person reads it, in UTC. */
export const timeText = (ms: number) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ')
