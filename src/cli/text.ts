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

/**
 * A bar for each pair, as long as both are together beside the longest: full for the first, hollow for the second. What
 * is not nothing shows.
 */
export function barTexts(pairs: readonly (readonly [number, number])[]): string[] {
  const max = Math.max(1, ...pairs.map(([first, second]) => first + second))
  const columns = (value: number) => (value === 0 ? 0 : Math.max(1, Math.round((value / max) * BAR_WIDTH)))
  return pairs.map(([first, second]) => '█'.repeat(columns(first)) + '░'.repeat(columns(second)))
}

const BAR_WIDTH = 30

/** Milliseconds since the epoch as a person reads it, in UTC. */
export const timeText = (ms: number) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ')

/** What went wrong, as it goes to stderr. */
export const errorText = (
  { message, code = null, status = null }: { message: string; code?: string | null; status?: number | null },
  { isJson }: { isJson: boolean },
) => (isJson ? JSON.stringify({ error: { message, code, status } }) : message)
