/** Text as CSV. A cell that a spreadsheet would take for a formula begins with an apostrophe. */
export const csvOf = (rows: readonly (readonly string[])[]): string =>
  rows
    .map((cells) =>
      cells
        .map((cell) => {
          const safe = /^[=+\-@\t\r]/.test(cell) && !/^-?\d+(\.\d+)?$/.test(cell) ? `'${cell}` : cell
          return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
        })
        .join(','),
    )
    .join('\r\n')
