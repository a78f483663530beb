import type { ComponentChildren } from 'preact'
import { place, setQuery } from '../route.ts'
import { Button } from './controls.tsx'
import { CsvButton } from './save-csv.tsx'

/** Pages of a list by cursor. The browser's Back leads to the page before. */
export function Pager({ cursor, children }: { cursor: string | undefined; children?: ComponentChildren }) {
  const isFirst = place.value.query.get('after') === null
  if (isFirst && cursor === undefined && children === undefined) return null
  return (
    <nav class="pager" aria-label="Pages">
      <p class="secondary">{children}</p>
      {!isFirst && <Button onClick={() => setQuery({ after: null }, { replaces: false })}>First page</Button>}
      {cursor !== undefined && (
        <Button onClick={() => setQuery({ after: cursor }, { replaces: false })}>Next</Button>
      )}
    </nav>
  )
}

/**
 * A table that scrolls in its own box. Columns marked `isMinor` are left out on a phone; actions stand below each row there.
 */
export function Table<T>({
  label,
  columns,
  rows,
  keyOf,
  file = null,
  hasActions = false,
}: {
  label: string
  columns: readonly {
    name: string
    isNumber?: boolean
    isMinor?: boolean
    cell: (row: T) => ComponentChildren
    /** The cell in a file; absent = it has none there. */
    text?: (row: T) => string
  }[]
  rows: readonly T[]
  keyOf: (row: T) => string
  /** Name of the CSV file of these rows; null = there is none. */
  file?: string | null
  /** The last column has the actions of a row. */
  hasActions?: boolean
}) {
  const inFile = columns.flatMap(({ name, text }) => (text === undefined ? [] : [{ name, text }]))
  const classOf = ({ isNumber = false, isMinor = false }: { isNumber?: boolean; isMinor?: boolean }) =>
    `${isNumber ? 'number ' : ''}${isMinor ? 'minor' : ''}`
  return (
    <>
      <section
        class={hasActions ? 'listing with-actions' : 'listing'}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it
        tabIndex={0}
        aria-label={`${label}, table`}
      >
        <table>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.name} scope="col" class={classOf(column)}>
                  {column.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={keyOf(row)}>
                {columns.map((column) => (
                  <td key={column.name} class={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {file !== null && (
        <div class="file">
          <CsvButton
            file={file}
            rows={[inFile.map(({ name }) => name), ...rows.map((row) => inFile.map(({ text }) => text(row)))]}
          />
        </div>
      )}
    </>
  )
}
