import { createReadStream } from 'node:fs'

/** The file cannot be read as what it is said to be. */
export class FileError extends Error {
  override name = 'FileError'
}

/** One record of the file; `line` is where it begins, from 1. `problem` = it cannot be a key. */
export type ImportRecord = { line: number; bytesRead: number } & (
  | { key: Record<string, unknown> }
  | { problem: string }
)

/**
 * The keys in a file, one after another; the file may be of any size.
 * @param format `ndjson`: each line an element of migrations.createKeys. `csv`: a head line names the fields; `hash` is
 *   base64 SHA-256, `meta`, `refill` and `ratelimit` JSON, lists are separated by blanks.
 * @throws FileError when its head line names an unknown field or a record does not end; what the system says when it
 *   cannot be read.
 */
export async function* readImportFile(path: string, format: 'csv' | 'ndjson'): AsyncGenerator<ImportRecord> {
  let head: string[] | null = null
  for await (const { line, bytesRead, text } of readRecords(path, { isQuoted: format === 'csv' })) {
    if (text.trim() === '') continue
    if (format === 'ndjson') {
      yield { line, bytesRead, ...readJson(text) }
    } else if (head === null) {
      head = readCells(text).map((name) => name.trim())
      const unknown = head.find((name) => !Object.hasOwn(FIELDS, name))
      if (unknown !== undefined)
        throw new FileError(
          `column ${JSON.stringify(unknown)} is unknown; known are ${Object.keys(FIELDS).join(', ')}`,
        )
    } else {
      yield { line, bytesRead, ...readRow(head, readCells(text)) }
    }
  }
}

function readJson(text: string): { key: Record<string, unknown> } | { problem: string } {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { key: { ...value } }
    return { problem: 'it is no JSON object' }
  } catch {
    return { problem: 'it is no JSON' }
  }
}

type FieldKind = 'text' | 'hash' | 'number' | 'boolean' | 'list' | 'json'
const FIELDS: Record<string, FieldKind> = {
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
  expires: 'number',
  remaining: 'number',
  refill: 'json',
  ratelimit: 'json',
  enabled: 'boolean',
  environment: 'text',
}

function readRow(head: string[], cells: string[]): { key: Record<string, unknown> } | { problem: string } {
  if (cells.length !== head.length)
    return { problem: `it has ${cells.length} cells, the head has ${head.length}` }
  const key: Record<string, unknown> = {}
  for (const [index, name] of head.entries()) {
    const text = cells[index] ?? ''
    if (text === '') continue
    const value = readCell(FIELDS[name] ?? 'text', text)
    if (value === undefined) return { problem: `${name} is ${JSON.stringify(text)}` }
    key[name] = value
  }
  return { key }
}

function readCell(kind: FieldKind, text: string): unknown {
  switch (kind) {
    case 'text':
      return text
    case 'hash':
      return { value: text, variant: 'sha256_base64' }
    case 'number':
      return /^-?\d+$/.test(text) ? Number(text) : undefined
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

/**
 * The cells of one row: commas between, quotes around those that hold commas, quotes or line ends. Those before a cell with
 * more behind its quotes: then they are too few, and the row is refused.
 */
function readCells(text: string): string[] {
  const cells: string[] = []
  // Each takes what ends it along. An empty first cell would match nothing, at the same place for ever.
  for (const [, quoted, plain = '', end] of text.matchAll(/(?:"((?:[^"]|"")*)"|((?!")[^,]*))(,|$)/gy)) {
    cells.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'))
    if (end === '') break
  }
  return cells
}

/** Records end at a line end, but not inside quotes where those count. */
async function* readRecords(
  path: string,
  { isQuoted }: { isQuoted: boolean },
): AsyncGenerator<{ line: number; bytesRead: number; text: string }> {
  let pending = ''
  let line = 1
  let bytesRead = 0
  const finish = (text: string) => {
    const record = { line, bytesRead, text: text.endsWith('\r') ? text.slice(0, -1) : text }
    line += text.split('\n').length
    return record
  }
  const stream = createReadStream(path, { encoding: 'utf8', highWaterMark: 256 * 1024 })
  for await (const chunk of stream) {
    // Spreadsheets put a byte order mark before the first name.
    pending += bytesRead === 0 ? String(chunk).replace(/^\uFEFF/, '') : chunk
    bytesRead = stream.bytesRead
    let from = 0
    let searchFrom = 0
    for (;;) {
      const end = pending.indexOf('\n', searchFrom)
      if (end === -1) break
      const text = pending.slice(from, end)
      searchFrom = end + 1
      if (isQuoted && (text.match(/"/g)?.length ?? 0) % 2 === 1) continue
      yield finish(text)
      from = end + 1
    }
    pending = pending.slice(from)
    if (pending.length > RECORD_CHARACTERS_MAX)
      throw new FileError(`line ${line} does not end; is a quote missing?`)
  }
  if (pending !== '') yield finish(pending)
}

const RECORD_CHARACTERS_MAX = 1_048_576
