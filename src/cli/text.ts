/** Rows in columns, each as wide as its widest cell, with numbers aligned right. */
export function tableText(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const shown = rows.map((row) => row.map((cell) => (typeof cell === 'number' ? cell : visible(cell))))
  const widths = head.map((title, column) =>
    Math.max(widthOf(title), ...shown.map((row) => widthOf(String(row[column] ?? '')))),
  )
  const line = (cells: readonly (string | number)[]) =>
    cells
      .map((cell, column) => {
        const text = String(cell)
        const blanks = ' '.repeat(Math.max(0, (widths[column] ?? 0) - widthOf(text)))
        return typeof cell === 'number' ? `${blanks}${text}` : `${text}${blanks}`
      })
      .join('  ')
      .trimEnd()
  return [line(head), ...shown.map(line)].join('\n')
}

/** One line for each field of an object, without undefined ones. */
export function fieldsText(fields: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const shown = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, visible(String(value))] as const],
  )
  const width = Math.max(...shown.map(([name]) => name.length))
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd()).join('\n')
}

/** Width on a terminal: some characters take two columns, some none. */
const widthOf = (text: string) => Bun.stringWidth(text)

/** Replaces characters that move the cursor or hide text by visible ones: other people choose names. */
export const visible = (text: string) =>
  text.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )

/**
 * A bar for each pair, in proportion to the largest sum: full blocks for the first number, hollow ones for the second. A
 * number above 0 gets at least one block.
 */
export function barTexts(pairs: readonly (readonly [number, number])[]): string[] {
  const max = Math.max(1, ...pairs.map(([first, second]) => first + second))
  const columns = (value: number) => (value === 0 ? 0 : Math.max(1, Math.round((value / max) * BAR_WIDTH)))
  return pairs.map(([first, second]) => '█'.repeat(columns(first)) + '░'.repeat(columns(second)))
}

const BAR_WIDTH = 30

/** Unix ms as date and time in UTC, for people. */
export const timeText = (ms: number) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ')

/** As {@link timeText}, with seconds. */
export const secondText = (ms: number) => new Date(ms).toISOString().slice(0, 19).replace('T', ' ')

/** As {@link timeText}; `otherwise` when there is no time. */
export const timeTextOr = (ms: number | undefined, otherwise: string) =>
  ms === undefined ? otherwise : timeText(ms)

export const yesOrNo = (value: boolean) => (value ? 'yes' : 'no')
