import type { ComponentChildren } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import { place, setQuery } from '../route.ts'
import { CsvButton } from './chart.tsx'
import { Button, CopyButton, Failure, Field, useAction } from './controls.tsx'
import { csvOf } from './csv.ts'
import { Dialog } from './dialog.tsx'

/** A labelled text of several lines. */
export function TextArea({
  label,
  hint,
  error = null,
  value,
  onInput,
  rows = 4,
}: {
  label: string
  hint?: ComponentChildren
  error?: string | null
  value: string
  onInput: (value: string) => void
  rows?: number
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="mono"
        rows={rows}
        spellcheck={false}
        value={value}
        aria-invalid={error !== null}
        aria-describedby={`${id}-hint`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <p class={error === null ? 'hint' : 'hint bad'} id={`${id}-hint`}>
        {error ?? hint}
      </p>
    </div>
  )
}

export function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string
  value: T
  options: readonly { value: T; name: string }[]
  onChange: (value: T) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        onChange={(event) => {
          const chosen = options.find((each) => each.value === event.currentTarget.value)
          if (chosen !== undefined) onChange(chosen.value)
        }}
      >
        {options.map((each) => (
          <option key={each.value} value={each.value}>
            {each.name}
          </option>
        ))}
      </select>
    </div>
  )
}

/** A field whose text is in the address, under `name`. It takes effect with Enter, and half a second after the last key. */
export function QueryField({
  name,
  label,
  placeholder,
}: {
  name: string
  label: string
  placeholder: string
}) {
  const asked = place.value.query.get(name) ?? ''
  const [text, setText] = useState(asked)
  useEffect(() => setText(asked), [asked])
  const apply = () => {
    if (text.trim() !== asked) setQuery({ [name]: text.trim(), after: null })
  }
  useEffect(() => {
    const timer = setTimeout(apply, 500)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <form
      class="query"
      onSubmit={(event) => {
        event.preventDefault()
        apply()
      }}
    >
      <Field label={label} value={text} onInput={setText} placeholder={placeholder} maxLength={256} />
    </form>
  )
}

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

/** A dialog with one form. Its failure stands in it, in the server's words. */
export function FormDialog({
  title,
  button,
  isDanger = false,
  lacking = null,
  run,
  onClose,
  children,
}: {
  title: string
  button: string
  isDanger?: boolean
  lacking?: string | null
  /** Does it; the dialog closes after it. */
  run: () => Promise<void>
  onClose: () => void
  children: ComponentChildren
}) {
  const { start, isBusy, failed } = useAction(async () => {
    await run()
    onClose()
  })
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        class="stacked"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        {children}
        {failed !== null && <Failure failed={failed} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind={isDanger ? 'danger' : 'main'} isBusy={isBusy} lacking={lacking}>
            {button}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

/** Asks once before something is gone. @param props.typed What must be typed; null = nothing. */
export function Confirm({
  title,
  button,
  typed,
  run,
  onClose,
  children,
}: {
  title: string
  button: string
  typed: string | null
  run: () => Promise<void>
  onClose: () => void
  children: ComponentChildren
}) {
  const [text, setText] = useState('')
  const isTyped = typed === null || text.trim() === typed
  return (
    <FormDialog
      title={title}
      button={button}
      isDanger
      lacking={isTyped ? null : `type ${typed} first`}
      run={run}
      onClose={onClose}
    >
      {children}
      {typed !== null && (
        <Field
          label="Type its name to confirm"
          hint={typed}
          value={text}
          onInput={setText}
          autoComplete="off"
        />
      )}
    </FormDialog>
  )
}

/** The call that a form makes, to copy. */
export function CallText({ method, input }: { method: string; input: object }) {
  const [isCurl, setCurl] = useState(true)
  const json = JSON.stringify(input, null, 2)
  const text = isCurl
    ? `curl -X POST ${location.origin}/v1/${method} \\\n  -H "Authorization: Bearer $ROOT_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${json.replaceAll("'", "'\\''")}'`
    : json
  return (
    <details class="call">
      <summary>The same as a call of the API</summary>
      <fieldset class="switch">
        <legend class="visually-hidden">Form</legend>
        <button type="button" aria-pressed={isCurl} onClick={() => setCurl(true)}>
          curl
        </button>
        <button type="button" aria-pressed={!isCurl} onClick={() => setCurl(false)}>
          JSON
        </button>
      </fieldset>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </details>
  )
}

/** Gives the browser a file. */
export function saveCsv(name: string, rows: readonly (readonly string[])[]): void {
  const url = URL.createObjectURL(new Blob([`${csvOf(rows)}\r\n`], { type: 'text/csv' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}

/** Reads the JSON object of a field. @returns the reason when it is none; an empty text is `{}`. */
export function readObject(text: string): { value: Record<string, unknown> } | { error: string } {
  if (text.trim() === '') return { value: {} }
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { value: { ...value } }
    return { error: 'It must be a JSON object, such as {"plan": "pro"}.' }
  } catch (cause) {
    return { error: cause instanceof Error ? cause.message : 'It is no JSON.' }
  }
}
