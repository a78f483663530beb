import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream, existsSync } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { createGunzip, createGzip } from 'node:zlib'
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { StartError } from '../../errors.ts'
import { fileProblem } from '../../lib/file-problem.ts'

/**
 * A backup file, the same for every kind of database:
 *
 * 1. the head, a line of JSON ({@link BackupHead}), which `head -1` shows;
 * 2. lines of JSON ({@link BackupLine}), compressed with gzip: tables with their rows, sequences, and at the end the numbers of rows;
 * 3. `sha256 <hex>` of everything before, the last line.
 *
 * Rows are texts as Postgres writes and reads them (`(key_1,ws_1,…)`), so nothing is lost between versions of Postgres.
 */
export type BackupHead = Static<typeof BackupHead>
const BackupHead = Type.Object({
  /** Format of the file. */
  tollgateBackup: Type.Integer(),
  /** Of the program that wrote it. */
  version: Type.String(),
  madeAt: Type.String(),
  /** For people: `embedded Postgres 18.6`. */
  source: Type.String(),
  databaseId: Type.String(),
  /** Names of the migrations of the database. Its rows fit the tables that these make. */
  migrations: Type.Array(Type.String(), { minItems: 1 }),
  /** For each function that makes partitions, the months (Unix ms). */
  months: Type.Record(Type.String(), Type.Array(Type.Number())),
})

export type BackupLine =
  | { table: string; columns: string[] }
  /** Rows of the last table. */
  | string[]
  | { sequence: string; lastValue: string; isCalled: boolean }
  | BackupCounts

/** The last line. Rows by table. */
export type BackupCounts = { rows: Record<string, number> }

const FORMAT = 1
const HEAD_BYTES_MAX = 1_048_576
/** `sha256 `, 64 digits, a line feed. */
const END_BYTES = 72

/**
 * Writes a whole file or none. It is on the disk when this returns, readable by the user alone.
 * @param lines The compressed lines, as JSON, each with its line feed.
 * @throws StartError when there is such a file, or it cannot be written.
 */
export async function writeBackup(
  path: string,
  head: Omit<BackupHead, 'tollgateBackup'>,
  lines: AsyncIterable<string>,
): Promise<{ bytes: number }> {
  if (existsSync(path)) throw new StartError(`${path} exists already; give another name`)
  const part = `${path}.part`
  const hash = createHash('sha256')
  const file = createWriteStream(part, { flags: 'w', mode: 0o600 })
  let bytes = 0
  const write = async (chunk: string | Uint8Array) => {
    hash.update(chunk)
    bytes += Buffer.byteLength(chunk)
    if (!file.write(chunk)) await Promise.race([once(file, 'drain'), failed.promise])
  }
  const failed = Promise.withResolvers<never>()
  file.on('error', failed.reject)
  failed.promise.catch(() => {}) // who writes or waits meets it
  try {
    await Promise.race([once(file, 'open'), failed.promise])
    await write(`${JSON.stringify({ tollgateBackup: FORMAT, ...head })}\n`)
    for await (const chunk of compressed(lines)) await write(chunk)
    const end = `sha256 ${hash.digest('hex')}\n`
    file.end(end)
    await Promise.race([once(file, 'close'), failed.promise])
    const written = await open(part, 'r+')
    await written.sync().finally(() => written.close())
    await rename(part, path)
    return { bytes: bytes + END_BYTES }
  } catch (cause) {
    file.destroy()
    await rm(part, { force: true })
    if (cause instanceof Error && 'syscall' in cause)
      throw new StartError(`${path} cannot be written: ${fileProblem(cause)}`, { cause })
    throw cause
  }
}

async function* compressed(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip({ level: 4 })
  const feeding = (async () => {
    for await (const line of lines) if (!gzip.write(line)) await once(gzip, 'drain')
    gzip.end()
  })()
  feeding.catch((cause: unknown) => gzip.destroy(cause instanceof Error ? cause : new Error(String(cause))))
  for await (const chunk of gzip) yield chunk
  await feeding
}

/** A file whose head and checksum are right. */
export type Backup = { head: BackupHead; bytes: number; lines(): AsyncGenerator<string> }

/**
 * Reads the whole file once, so that a damaged one is found before anything is changed.
 * @throws StartError: one line that says what is wrong with it.
 */
export async function openBackup(path: string): Promise<Backup> {
  const file = await open(path, 'r').catch((cause: unknown) => {
    throw new StartError(`${path} cannot be read: ${fileProblem(cause)}`, { cause })
  })
  try {
    const { size } = await file.stat()
    const start = Buffer.alloc(Math.min(size, HEAD_BYTES_MAX))
    await file.read(start, 0, start.length, 0).catch((cause: unknown) => {
      throw new StartError(`${path} cannot be read: ${fileProblem(cause)}`, { cause })
    })
    const headEnd = start.indexOf(0x0a)
    const head = readHead(path, headEnd === -1 ? '' : start.subarray(0, headEnd).toString())
    const end = Buffer.alloc(END_BYTES)
    await file.read(end, 0, END_BYTES, Math.max(0, size - END_BYTES))
    const [, said] = /^sha256 ([0-9a-f]{64})\n$/.exec(end.toString('latin1')) ?? []
    if (said === undefined || size < headEnd + END_BYTES)
      throw new StartError(`${path} is damaged: its end is missing, so it was cut off or not copied whole`)
    const hash = createHash('sha256')
    const upTo = size - END_BYTES - 1
    for await (const chunk of createReadStream(path, { end: upTo })) hash.update(chunk)
    if (hash.digest('hex') !== said)
      throw new StartError(`${path} is damaged: its checksum does not match its content`)
    return {
      head,
      bytes: size,
      lines: () => linesOf(path, { start: headEnd + 1, end: upTo }),
    }
  } finally {
    await file.close()
  }
}

function readHead(path: string, text: string): BackupHead {
  let head: unknown
  try {
    head = JSON.parse(text)
  } catch {
    head = null
  }
  if (typeof head !== 'object' || head === null || !('tollgateBackup' in head))
    throw new StartError(
      `${path} is not a backup of Tollgate; files of pg_dump are restored with deploy/backup/restore.sh`,
    )
  if (head.tollgateBackup !== FORMAT) {
    const by = 'version' in head ? ` Tollgate ${String(head.version)}` : ' a newer version'
    throw new StartError(
      `${path} has format ${String(head.tollgateBackup)}, written by${by}; this version reads format ${FORMAT}: use that version or a newer one`,
    )
  }
  if (!Value.Check(BackupHead, head)) throw new StartError(`${path} is damaged: its first line is incomplete`)
  return head
}

async function* linesOf(path: string, range: { start: number; end: number }): AsyncGenerator<string> {
  const gunzip = createReadStream(path, range).pipe(createGunzip())
  for await (const line of createInterface({ input: gunzip, crlfDelay: Number.POSITIVE_INFINITY }))
    if (line !== '') yield line
}
