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
  saveFile(file, [`${csvOf(rows)}\r\n`])

/** Gives the browser a file, in parts. @param type Its media type. */
export function saveFile(file: string, parts: BlobPart[], type = 'text/csv'): void {
  const url = URL.createObjectURL(new Blob(parts, { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = file
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}
