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

/** Gives the browser a file. */
export function saveCsv(file: string, rows: readonly (readonly string[])[]): void {
  const url = URL.createObjectURL(new Blob([`${csvOf(rows)}\r\n`], { type: 'text/csv' }))
  const link = document.createElement('a')
  link.href = url
  link.download = file
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}
