import { Button } from './controls.tsx'
import { csvOf } from './csv.ts'

/** Saves rows, the first of which names the columns. */
export function CsvButton({ file, rows }: { file: string; rows: readonly (readonly string[])[] }) {
  return (
    <Button kind="quiet" icon="download" onClick={() => saveCsv(file, rows)}>
      CSV
    </Button>
  )
}

export const saveCsv = (file: string, rows: readonly (readonly string[])[]): void =>
  saveText(file, [`${csvOf(rows)}\r\n`])

/** Gives the browser a CSV file, in parts. */
export function saveText(file: string, parts: string[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type: 'text/csv' }))
  const link = document.createElement('a')
  link.href = url
  link.download = file
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}
