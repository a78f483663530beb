import type { ComponentChildren } from 'preact'
import { place, setQuery } from '../route.ts'
import { CardHead, CardRow } from './card.tsx'
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
 * A table that scrolls in its own box. On a phone, columns marked `isMinor` are in a card that a row opens, and actions stand
 * below each row.
 */
export function Table<T>({
  label,
  columns,
  rows,
  keyOf,
  titleOf = keyOf,
  file = null,
  pager = null,
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
  /** What people call a row; absent = by its key. */
  titleOf?: (row: T) => string
  /** Name of the CSV file of these rows; null = there is none. */
  file?: string | null
  /** Stands below, beside the button of the file. */
  pager?: ComponentChildren
  /** The last column has the actions of a row. */
  hasActions?: boolean
}) {
  const minor = columns.filter(({ isMinor = false }) => isMinor)
  const inFile = columns.flatMap(({ name, text }) => (text === undefined ? [] : [{ name, text }]))
  const classOf = (column: (typeof columns)[number]) =>
    [
      column.isNumber === true && 'number',
      column.isMinor === true && 'minor',
      hasActions && column === columns.at(-1) && 'acts',
    ]
      .filter((name) => name !== false)
      .join(' ')
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
              {minor.length > 0 && <CardHead />}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => {
              const cells = columns.map((column) => (
                <td key={column.name} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))
              if (minor.length === 0) return <tr key={keyOf(row)}>{cells}</tr>
              return (
                <CardRow
                  key={keyOf(row)}
                  name={titleOf(row)}
                  columns={columns.length}
                  facts={minor.map(({ name, cell }) => ({ name, value: cell(row) }))}
                >
                  {cells}
                </CardRow>
              )
            })}
          </tbody>
        </table>
      </section>
      {(file !== null || pager !== null) && (
        <div class="file">
          {pager}
          {file !== null && (
            <CsvButton
              file={file}
              rows={[
                inFile.map(({ name }) => name),
                ...rows.map((row) => inFile.map(({ text }) => text(row))),
              ]}
            />
          )}
        </div>
      )}
    </>
  )
}
