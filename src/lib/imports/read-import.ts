import { KEY_HASH_WANTED, readKeyHash } from '../key-hash.ts'
import { parseDate } from '../written-time.ts'

/*
 * Reads the keys in a file that is imported: `tollgate import` and the dashboard read the same, in any place that has the
 * file in chunks. Memory is bounded, whatever the size of the file.
 */

/** The file cannot be read in the given format. */
export class FileError extends Error {
  override name = 'FileError'
}

/**
 * A part of the file: `lines` lines, beginning with number `line` (from 1). The parts cover every line exactly once, so
 * none is lost silently.
 */
export type ImportRecord = {
  line: number
  lines: number
  bytesRead: number
  /** The lines as they are in the file, with their ends; empty for lines that are too long to be kept. */
  text: string
} & Content
/** `problem`: the lines cannot be a key. `skipped`: they are not meant to be one (the head, or empty lines). */
type Content = { key: Record<string, unknown> } | { problem: string } | { skipped: true }

export type ImportFormat = 'csv' | 'ndjson'

export type ImportOptions = {
  /** True when keys that name no API get one. */
  hasApi: boolean
  /** The field of each column of a CSV; null = it is left out. Absent = the names in the first line are the fields. */
  columns?: readonly (ImportField | null)[] | undefined
  /** The hash of a text, in the form of `key-hash.ts`; absent = a key may not have both a text and a hash. */
  hashOf?: (text: string) => string
}

/**
 * Yields the keys in a file of any size. Lines end with LF, CRLF or CR.
 * @param chunks The bytes of the file.
 * @param format `ndjson`: each line is an element of migrations.createKeys. `csv`: the first line names the fields; `hash`
 *   is SHA-256 in base64 or hex, `meta`, `refill` and `ratelimit` are JSON, lists are separated by blanks.
 * @throws FileError when the file does not have this format; whatever `chunks` throws.
 */
export async function* readImport(
  chunks: AsyncIterable<Uint8Array>,
  format: ImportFormat,
  options: ImportOptions,
): AsyncGenerator<ImportRecord> {
  const next = format === 'csv' ? csvReader(options) : jsonReader(options)
  const decoder = new TextDecoder() // drops a byte order mark at the beginning
  let pending = ''
  let line = 1
  let bytesRead = 0
  /** The pending text belongs to a refused line whose end was not read yet. */
  let isTooLong = false

  /** Yields the complete parts of `pending` and leaves the rest. */
  function* parts(isLast: boolean): Generator<ImportRecord> {
    let from = 0
    for (;;) {
      if (isTooLong) {
        const end = lineEnd(pending, from, isLast)
        if (end === null) {
          from = pending.endsWith('\r') ? pending.length - 1 : pending.length
          break
        }
        isTooLong = false
        from = end
        yield { line: line++, lines: 1, bytesRead, text: '', problem: TOO_LONG }
      }
      if (from === pending.length) break
      let part = next(pending, from, isLast)
      if (part === null && pending.length - from > PENDING_MAX) {
        const end = lineEnd(pending, from, isLast)
        if (end === null) {
          isTooLong = true
          continue
        }
        part = { end, content: { problem: QUOTE_WRONG } }
      }
      if (part === null) break
      const lines = countLines(pending, from, part.end)
      yield { line, lines, bytesRead, text: pending.slice(from, part.end), ...part.content }
      line += lines
      from = part.end
    }
    pending = pending.slice(from)
  }

  for await (const chunk of chunks) {
    if (bytesRead === 0) requireText(chunk)
    bytesRead += chunk.length
    pending += decoder.decode(chunk, { stream: true })
    yield* parts(false)
  }
  pending += decoder.decode()
  yield* parts(true)
}

/** Longest quoted cell, in characters. It may span lines; if it is longer, its quote was not an opening one. */
const PENDING_MAX = 1_048_576
const TOO_LONG = `it is longer than ${PENDING_MAX} characters`
const QUOTE_WRONG = 'a cell begins with a quote but does not end with one'

/** @throws FileError for files that are not UTF-8 text, such as a spreadsheet. */
function requireText(bytes: Uint8Array): void {
  const begins = (...first: number[]) => first.every((byte, at) => bytes[at] === byte)
  if (begins(0x50, 0x4b, 3, 4))
    throw new FileError('the file is a spreadsheet or a ZIP file; save it as CSV in UTF-8')
  if (begins(0x1f, 0x8b)) throw new FileError('the file is compressed with gzip; unpack it first')
  if (begins(0xff, 0xfe) || begins(0xfe, 0xff) || bytes.subarray(0, 4).includes(0))
    throw new FileError('the file is in UTF-16; save it as UTF-8')
}

/** The position after the end of the line that contains `from`. Null = the end may be in the next chunk. */
function lineEnd(text: string, from: number, isLast: boolean): number | null {
  LINE_END.lastIndex = from
  const found = LINE_END.exec(text)
  if (found === null) return isLast ? text.length : null
  // The line feed after this carriage return may not have been read yet.
  if (!isLast && found[0] === '\r' && LINE_END.lastIndex === text.length) return null
  return LINE_END.lastIndex
}
const LINE_END = /\r\n|\n|\r/g

/** Counts a last line without an end, too. */
function countLines(text: string, from: number, to: number): number {
  let lines = 0
  for (let at = from; at < to; lines++) at = lineEnd(text, at, true) ?? to
  return lines
}

/**
 * Reads the part that begins at `from`, and where it ends.
 * @param isLast Nothing follows `text`. The result is never null then.
 * @returns null = its end may be in the next chunk.
 */
type Reader = (text: string, from: number, isLast: boolean) => { end: number; content: Content } | null

const jsonReader =
  (options: ImportOptions): Reader =>
  (text, from, isLast) => {
    const end = lineEnd(text, from, isLast)
    return end === null ? null : { end, content: contentOf(text.slice(from, end), readJson, options) }
  }

function contentOf(text: string, read: (text: string) => Content, options: ImportOptions): Content {
  if (text.trim() === '') return { skipped: true }
  if (text.includes('\uFFFD')) return { problem: 'it contains bytes that are not UTF-8' }
  const content = read(text)
  return 'key' in content ? checked(content.key, options) : content
}

function readJson(text: string): Content {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { key: { ...value } }
    return { problem: 'it is not a JSON object' }
  } catch {
    return { problem: 'it is not valid JSON' }
  }
}

/**
 * Reads rows of a CSV. A quote opens only at the start of a cell and closes only at its end. When a quote does not close
 * like that, or a row over several lines has not as many cells as the head, only its first line is refused. Otherwise all
 * following lines would be lost.
 */
function csvReader(options: ImportOptions): Reader {
  let head: readonly (ImportField | null)[] | null = null
  return (text, from, isLast) => {
    const row = readCells(text, from, isLast)
    if (row === null) return null
    const { end, cells } = row
    const firstEnd = lineEnd(text, from, isLast)
    if (firstEnd === null) return null
    if (head === null) {
      if (text.slice(from, end).trim() === '') return { end, content: { skipped: true } }
      if (cells === null) throw new FileError(`the header line: ${QUOTE_WRONG}`)
      head = options.columns ?? readHead(cells, options)
      return { end, content: { skipped: true } }
    }
    if (cells === null) return { end: firstEnd, content: { problem: QUOTE_WRONG } }
    const names = head
    if (firstEnd < end && cells.length !== names.length)
      return { end: firstEnd, content: { problem: `${QUOTE_WRONG} in this line` } }
    return { end, content: contentOf(text.slice(from, end), () => readRow(names, cells), options) }
  }
}

/**
 * The cells of the row that begins at `from`. `cells` is null when a quote is wrong.
 * @returns null = its end may be in the next chunk.
 */
function readCells(
  text: string,
  from: number,
  isLast: boolean,
): { end: number; cells: string[] | null } | null {
  const cells: string[] = []
  for (let at = from; ; ) {
    if (text[at] === '"') {
      let quote = text.indexOf('"', at + 1)
      while (quote !== -1 && text[quote + 1] === '"') quote = text.indexOf('"', quote + 2)
      if (!isLast && (quote === -1 || quote + 1 === text.length)) return null
      if (quote === -1 || !/^[,\r\n]?$/.test(text.slice(quote + 1, quote + 2)))
        return { end: text.length, cells: null }
      cells.push(text.slice(at + 1, quote).replaceAll('""', '"'))
      at = quote + 1
    } else {
      PLAIN_CELL.lastIndex = at
      const cell = PLAIN_CELL.exec(text)?.[0] ?? ''
      cells.push(cell)
      at += cell.length
    }
    if (text[at] === ',') {
      at++
      continue
    }
    const end = lineEnd(text, at, isLast)
    return end === null ? null : { end, cells }
  }
}
const PLAIN_CELL = /[^,\r\n]*/y

/**
 * The names in the first line of a CSV, for whoever says which field each column is.
 * @param chunks The bytes of the file; no more are read than the line takes.
 * @throws FileError when the file is no CSV; whatever `chunks` throws.
 */
export async function readColumns(chunks: AsyncIterable<Uint8Array>): Promise<string[]> {
  const reader = csvReader({ hasApi: true, columns: [] })
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of chunks) {
    if (text === '') requireText(chunk)
    text += decoder.decode(chunk, { stream: true })
    const names = namesOf(text.replace(EMPTY_LINES, ''), false)
    if (names !== null) return names
    if (text.length > PENDING_MAX) throw new FileError(`the header line: ${TOO_LONG}`)
  }
  return namesOf(text.replace(EMPTY_LINES, ''), true) ?? []

  function namesOf(rest: string, isLast: boolean): string[] | null {
    if (rest === '' || reader(rest, 0, isLast) === null) return null
    return trimmed(readCells(rest, 0, isLast)?.cells ?? [])
  }
}
const EMPTY_LINES = /^(?:[^\S\r\n]*(?:\r\n|\n|\r))+/

/** @throws FileError when the cells are separated by something else. */
function trimmed(cells: readonly string[]): string[] {
  const names = cells.map((name) => name.trim())
  const [only = ''] = names
  const separator = names.length === 1 ? /[;\t|]/.exec(only)?.[0] : undefined
  if (separator !== undefined)
    throw new FileError(
      `the cells of the header line are separated by ${JSON.stringify(separator)}; it must be ","`,
    )
  return names
}

/** @throws FileError */
function readHead(cells: string[], { hasApi }: ImportOptions): ImportField[] {
  const head = trimmed(cells)
  const known = `known columns are ${IMPORT_FIELDS.join(', ')}`
  // Checked first: without a head line these cells are a key, and messages must not repeat a key.
  if (!head.includes('hash') && !head.includes('plaintext'))
    throw new FileError(
      `the header line has no column "hash" or "plaintext"; if the file has no header line, add one; ${known}`,
    )
  const unknown = head.find((name) => !isField(name))
  if (unknown !== undefined) throw new FileError(`column ${JSON.stringify(unknown)} is unknown; ${known}`)
  const repeated = head.find((name, at) => head.indexOf(name) !== at)
  if (repeated !== undefined) throw new FileError(`column ${JSON.stringify(repeated)} appears twice`)
  if (!hasApi && !head.includes('apiId'))
    throw new FileError('the header line has no column "apiId"; give the API of the keys with --api')
  return head.filter(isField)
}

type FieldKind = 'text' | 'hash' | 'number' | 'time' | 'boolean' | 'list' | 'json'
const FIELDS = {
  apiId: 'text',
  hash: 'hash',
  plaintext: 'text',
  start: 'text',
  prefix: 'text',
  name: 'text',
  externalId: 'text',
  ownerId: 'text',
  meta: 'json',
  roles: 'list',
  permissions: 'list',
  expires: 'time',
  remaining: 'number',
  refill: 'json',
  ratelimit: 'json',
  enabled: 'boolean',
  environment: 'text',
} as const satisfies Record<string, FieldKind>
/** A field of an imported key that a column can be. */
export type ImportField = keyof typeof FIELDS
export const IMPORT_FIELDS = Object.keys(FIELDS) as ImportField[] // the names of the table
const isField = (name: string): name is ImportField => Object.hasOwn(FIELDS, name)

function readRow(head: readonly (ImportField | null)[], cells: string[]): Content {
  if (cells.length !== head.length)
    return { problem: `it has ${cells.length} cells, the header line has ${head.length}` }
  const key: Record<string, unknown> = {}
  for (const [index, name] of head.entries()) {
    const text = cells[index] ?? ''
    if (text === '' || name === null) continue
    const kind = FIELDS[name]
    const value = readCell(kind, text)
    if (value === undefined) return { problem: `${name}: must be ${WANTED[kind]}${quotable(text)}` }
    key[name] = value
  }
  return { key }
}

/** Kinds of fields that do not take every text, with their format. */
const WANTED: Partial<Record<FieldKind, string>> = {
  number: 'a whole number',
  time: 'a time such as 2026-12-31T12:00Z, or Unix milliseconds',
  boolean: 'true or false',
  json: 'JSON',
}

/** Shows only numbers and times: any other text may be a key in the wrong column. */
const quotable = (text: string) => (/^[\d\s.,:+eE-]{1,30}$/.test(text) ? `, is ${JSON.stringify(text)}` : '')

function readCell(kind: FieldKind, text: string): unknown {
  switch (kind) {
    case 'text':
      return text
    case 'hash':
      return { value: text, variant: 'sha256_base64' }
    case 'number':
      return /^-?\d+$/.test(text) ? Number(text) : undefined
    case 'time':
      return readTime(text)
    case 'boolean':
      return { true: true, false: false, '1': true, '0': false }[text.toLowerCase()]
    case 'list':
      return text.split(/\s+/).filter((word) => word !== '')
    case 'json':
      try {
        return JSON.parse(text)
      } catch {
        return undefined
      }
    default:
      return kind satisfies never
  }
}

/** A duration is refused: running the import twice would move the end. */
function readTime(text: string): number | undefined {
  if (/^-?\d+$/.test(text)) return Number(text)
  return parseDate(text) ?? undefined
}

/**
 * The key with its hash in the form used for look-ups; a problem when no verification could find it. Messages never contain
 * the text, which may be a key. The server checks everything else.
 */
function checked(key: Record<string, unknown>, { hashOf }: ImportOptions): Content {
  const { plaintext } = key
  const isText = typeof plaintext === 'string' && plaintext !== ''
  if (isText) {
    if (plaintext.length > KEY_CHARACTERS_MAX)
      return {
        problem: `plaintext: has ${plaintext.length} characters; a key has at most ${KEY_CHARACTERS_MAX}`,
      }
    if (plaintext !== plaintext.trim()) return { problem: 'plaintext: begins or ends with white space' }
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    if (/[\x00-\x1f\x7f]/.test(plaintext))
      return { problem: 'plaintext: contains a line break or a control character' }
  }
  const given = hashTextOf(key.hash)
  if (given === null) return isText || key.hash !== undefined ? { key } : { problem: NO_SECRET }
  const hash = readKeyHash(given)
  if (hash === null) return { problem: `hash: has ${given.length} characters; it ${KEY_HASH_WANTED}` }
  if (isText && hashOf === undefined) return { problem: BOTH }
  if (isText && hashOf?.(plaintext) !== hash) return { problem: 'hash: does not match plaintext' }
  return { key: { ...key, hash: { variant: 'sha256_base64', ...Object(key.hash), value: hash } } }
}
const BOTH = 'has both plaintext and hash; leave one of them out'
const NO_SECRET = 'either hash or plaintext is required'

/** The same bound as in keys.verifyKey. */
const KEY_CHARACTERS_MAX = 4096

/** The text of a hash object; null when its shape is unknown. */
function hashTextOf(hash: unknown): string | null {
  if (typeof hash !== 'object' || hash === null || !('value' in hash)) return null
  return typeof hash.value === 'string' ? hash.value : null
}
