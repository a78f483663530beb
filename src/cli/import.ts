import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { FileError } from '../lib/imports/read-import.ts'
import {
  type CheckedKey,
  type CreateAll,
  checkItems,
  type ImportItem,
  KEYS_PER_CALL,
  type RefusedLine,
  type SentKeys,
  sendKeys,
} from '../lib/imports/send-keys.ts'
import { hashKey } from '../verify/secret.ts'
import type { Command } from './arguments.ts'
import { CallError, type Client } from './client.ts'
import { readImportFile } from './import-file.ts'
import { onInterrupt } from './interrupt.ts'
import { UsageError } from './usage-error.ts'

/*
 * Imports keys from a file: a hundred in each call, several calls at once. `<file>.progress` has the last line up to which
 * all calls were answered, so that a stopped import continues there. Unanswered calls are sent again: a key whose hash
 * exists is not created twice, and is counted as existing, not as refused. Refused lines go to `<file>.refused`.
 */

/** Identifies an import besides the file's name, so that it does not continue with another import's progress. */
type Job = { bytes: number; modifiedMs: number; format: string; url: string; apiId: string | null }
type Counts = { imported: number; existing: number; refused: number }
/** Results of an import. Imported, existing, refused and skipped lines add up to all lines. */
type Report = Counts & {
  lines: number
  /** The head, empty lines, and further lines of rows that span several. */
  skipped: number
  /** Keys that had already expired; they are imported all the same. */
  expired: number
  /** Lines with the key of an earlier line, among the first {@link REMEMBERED_MAX} distinct keys. */
  repeated: number
}
/** Everything up to `line` is answered and counted. */
type Progress = Counts & { job: Job; line: number }

export const importCommand: Command = {
  name: 'import',
  about: 'import existing keys from a CSV or NDJSON file, as hashes or as plain text',
  arguments: { file: 'CSV with a header line, or NDJSON' },
  options: {
    api: { value: '<id>', about: 'API of the keys that do not set one' },
    format: { value: 'csv|ndjson', about: 'default: csv for file names that end with .csv, else ndjson' },
    connections: { value: '<n>', about: 'number of parallel calls; default 4' },
    'dry-run': {
      value: null,
      about: 'only say what would be refused, and why; changes nothing, and keeps no progress',
    },
  },
  example: 'import keys.csv --api api_1234',
  async run(given) {
    const path = given.argument('file')
    const format = given.text('format') ?? (path.endsWith('.csv') ? 'csv' : 'ndjson')
    if (format !== 'csv' && format !== 'ndjson') throw new UsageError('--format must be csv or ndjson')
    if (given.has('dry-run')) {
      const found = await checkFile(await given.client(), path, { format, apiId: given.text('api') })
      given.print(checkText(found), found)
      return found.refused === 0 ? 0 : 1
    }
    const result = await importFile(await given.client(), path, {
      format,
      apiId: given.text('api'),
      connections: given.whole('connections', 1) ?? 4,
    })
    given.print(reportText(result, path), result)
    return result.refused === 0 ? 0 : 1
  },
}

function reportText(report: Report, path: string): string {
  const { lines, imported, existing, refused, skipped, expired, repeated } = report
  const counts = `imported ${imported}, there already ${existing}, refused ${refused}, skipped ${skipped}`
  return [
    `${counts}, of ${lines} line${lines === 1 ? '' : 's'}`,
    ...(refused === 0 ? [] : [`see ${path}.refused`]),
    ...(repeated === 0 ? [] : [`${repeated} repeat the key of an earlier line`]),
    ...(expired === 0 ? [] : [`${expired} have already expired`]),
  ].join('; ')
}

type Checked = { lines: number; new: number; existing: number; refused: number; refusedLines: RefusedLine[] }

/** Checks a whole file, a hundred keys in each call. */
async function checkFile(
  client: Client,
  path: string,
  { format, apiId }: { format: 'csv' | 'ndjson'; apiId: string | undefined },
): Promise<Checked> {
  if (statSync(path).isDirectory()) throw new FileError(`${path} is a folder; import takes one file`)
  const found: Checked = { lines: 0, new: 0, existing: 0, refused: 0, refusedLines: [] }
  const check = async (items: ImportItem[]) => {
    const { imported, existing, refused } = await checkItems(items, async (keys) => {
      const reply = await client.post<{ keys: CheckedKey[] }>('migrations.checkKeys', { keys })
      return reply.keys
    })
    found.new += imported
    found.existing += existing
    found.refused += refused.length
    found.refusedLines.push(...refused.slice(0, REFUSED_SHOWN_MAX - found.refusedLines.length))
  }
  const items: ImportItem[] = []
  for await (const record of readImportFile(path, format, { hasApi: apiId !== undefined })) {
    found.lines += record.lines
    if ('skipped' in record) continue
    items.push('key' in record ? { ...record, key: { apiId, ...record.key } } : record)
    if (items.length === KEYS_PER_CALL) await check(items.splice(0))
  }
  if (items.length > 0) await check(items)
  return found
}

function checkText(found: Checked): string {
  const { lines, existing, refused, refusedLines } = found
  return [
    ...refusedLines.map(({ line, reason }) => `line ${line}: ${reason}`),
    ...(refused > refusedLines.length ? [`and ${refused - refusedLines.length} more`] : []),
    `would import ${found.new}, there already ${existing}, would refuse ${refused}, of ${lines} line${lines === 1 ? '' : 's'}; nothing was changed`,
  ].join('\n')
}

const REFUSED_SHOWN_MAX = 100

/** @throws CallError when the server stays away. The progress file then says where to continue. */
async function importFile(
  client: Client,
  path: string,
  options: { format: 'csv' | 'ndjson'; apiId: string | undefined; connections: number },
): Promise<Report> {
  const stat = statSync(path)
  const { size: bytes, mtimeMs: modifiedMs } = stat
  if (stat.isDirectory()) throw new FileError(`${path} is a folder; import takes one file`)
  const progress = readProgress(path, {
    bytes,
    modifiedMs,
    format: options.format,
    url: client.config.url,
    apiId: options.apiId ?? null,
  })
  const doneBefore = progress.line
  dropRefusedAfter(path, doneBefore)
  using bar = new ProgressBar(bytes, progress)
  using _ = onInterrupt((status) => {
    bar.leave()
    process.stderr.write(
      `stopped after line ${progress.line}; run the same command again to continue from there\n`,
    )
    process.exit(status)
  })

  // In the order of the file. Calls end in any order but are counted in this one: progress passes a line only when all
  // lines before it are answered, so that nothing is counted twice, however often an import is stopped.
  const sent: { lastLine: number; outcome: SentKeys | null; done: Promise<void> }[] = []
  const reckon = () => {
    let answered = sent[0]
    while (answered?.outcome != null) {
      const { imported, existing, refused } = answered.outcome
      progress.imported += imported
      progress.existing += existing
      progress.refused += refused.length
      progress.line = answered.lastLine
      for (const each of refused) appendFileSync(`${path}.refused`, `${JSON.stringify(each)}\n`)
      sent.shift()
      answered = sent[0]
    }
    writeProgress(path, progress)
  }
  const send = async (items: ImportItem[]) => {
    const lastLine = items.at(-1)?.line ?? 0
    const call = { lastLine, outcome: null as SentKeys | null, done: Promise.resolve() } // set below
    call.done = sendKeys(items, createAllBy(client)).then((outcome) => {
      call.outcome = outcome
      reckon()
    })
    call.done.catch(() => {}) // the error goes to whichever code awaits `done`
    sent.push(call)
    const underWay = () => sent.filter(({ outcome }) => outcome === null)
    while (underWay().length >= options.connections || sent.length >= SENT_MAX)
      await Promise.race(underWay().map(({ done }) => done))
  }

  let items: ImportItem[] = []
  // Counts the whole file, which is read from its beginning each time, including lines sent by an earlier run.
  const seen = { lines: 0, skipped: 0, expired: 0, repeated: 0 }
  const hashes = new Set<string>()
  const now = Date.now()
  try {
    for await (const { bytesRead, ...record } of readImportFile(path, options.format, {
      hasApi: options.apiId !== undefined,
    })) {
      seen.lines += record.lines
      if ('skipped' in record) {
        seen.skipped += record.lines
        continue
      }
      seen.skipped += record.lines - 1
      if ('key' in record) {
        if (hasExpired(record.key, now)) seen.expired++
        const name = shortHashOf(record.key)
        if (name !== null && hashes.has(name)) seen.repeated++
        else if (name !== null && hashes.size < REMEMBERED_MAX) hashes.add(name)
      }
      if (record.line <= doneBefore) continue
      items.push('key' in record ? { ...record, key: { apiId: options.apiId, ...record.key } } : record)
      if (items.length === KEYS_PER_CALL) {
        await send(items)
        items = []
      }
      bar.show(bytesRead)
    }
    if (items.length > 0) await send(items)
    await Promise.all(sent.map(({ done }) => done))
  } catch (cause) {
    // Calls in flight still get their answers, which the progress file then includes.
    await Promise.allSettled(sent.map(({ done }) => done))
    throw cause
  }
  bar.show(bytes, { isLast: true })
  rmSync(`${path}.progress`, { force: true })
  const { imported, existing, refused } = progress
  return { imported, existing, refused, ...seen }
}

const hasExpired = ({ expires }: Record<string, unknown>, now: number) =>
  typeof expires === 'number' && expires > 0 && expires < now

/** Half of the key's hash, which is still unique. */
function shortHashOf({ hash, plaintext }: Record<string, unknown>): string | null {
  if (typeof plaintext === 'string' && plaintext !== '') return hashKey(plaintext).slice(0, 22)
  return typeof hash === 'object' && hash !== null && 'value' in hash ? String(hash.value).slice(0, 22) : null
}
/** Largest number of hashes kept to find repeated keys; about 100 bytes each. */
const REMEMBERED_MAX = 1_000_000

/** Largest number of answered calls behind an unanswered one: it bounds memory, and what is sent again after a stop. */
const SENT_MAX = 256

/** Removes refusals after the last counted line: the killed run wrote them, and this run will write them again. */
function dropRefusedAfter(path: string, line: number): void {
  if (!existsSync(`${path}.refused`)) return
  const isDone = (text: string) => {
    try {
      return JSON.parse(text).line <= line
    } catch {
      return false // cut off by a full disk
    }
  }
  const kept = readFileSync(`${path}.refused`, 'utf8')
    .split('\n')
    .filter((text) => text !== '' && isDone(text))
  if (kept.length === 0) rmSync(`${path}.refused`)
  else writeFileSync(`${path}.refused`, `${kept.join('\n')}\n`)
}

/** @throws CallError when several attempts get no answer. */
const createAllBy =
  (client: Client): CreateAll =>
  async (keys) => {
    try {
      await sendPatiently(client, keys)
      return null
    } catch (cause) {
      if (!(cause instanceof CallError) || !isAboutTheKeys(cause)) throw cause
      return { code: cause.code ?? '', message: cause.message }
    }
  }

/** False for a wrong or missing root key: then every key would be refused, and no line is at fault. */
const isAboutTheKeys = ({ status, code }: CallError) =>
  status !== null && status < 500 && status !== 403 && status !== 429 && code !== null

async function sendPatiently(client: Client, keys: readonly Record<string, unknown>[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await client.post('migrations.createKeys', keys)
      return
    } catch (cause) {
      const mayPass = cause instanceof CallError && (cause.status === null || cause.status >= 500)
      if (!mayPass || !client.hasAnswered || attempt === ATTEMPTS_MAX) throw cause
      await Bun.sleep(Math.min(250 * 2 ** attempt, PAUSE_MAX_MS))
    }
  }
}

/** With the pauses in between about a minute: a restarted server may have much to recover. */
const ATTEMPTS_MAX = 16
const PAUSE_MAX_MS = 5000

/** The progress of this very import, or of one that has not begun. */
function readProgress(path: string, job: Job): Progress {
  const fresh: Progress = { job, line: 0, imported: 0, existing: 0, refused: 0 }
  try {
    const read: Progress = JSON.parse(readFileSync(`${path}.progress`, 'utf8'))
    return Bun.deepEquals(read.job, job) ? { ...fresh, ...read } : fresh
  } catch {
    return fresh
  }
}

/** Written by renaming, so that a kill leaves the previous file. */
function writeProgress(path: string, progress: Progress): void {
  writeFileSync(`${path}.progress.part`, JSON.stringify(progress))
  renameSync(`${path}.progress.part`, `${path}.progress`)
}

/** Shown only on a terminal, on stderr, so that stdout can be piped. */
class ProgressBar implements Disposable {
  readonly #isShown = process.stderr.isTTY === true
  readonly #beganAt = performance.now()
  readonly #doneBefore: number
  #shownAt = 0

  constructor(
    private readonly bytes: number,
    private readonly progress: Counts,
  ) {
    this.#doneBefore = doneOf(progress)
  }

  /** At most ten times a second, and always for the last one. */
  show(bytesRead: number, { isLast = false } = {}): void {
    if (!this.#isShown || (!isLast && performance.now() - this.#shownAt < 100)) return
    this.#shownAt = performance.now()
    const share = this.bytes === 0 ? 1 : bytesRead / this.bytes
    const filled = Math.round(share * WIDTH)
    const done = doneOf(this.progress)
    const seconds = (performance.now() - this.#beganAt) / 1000
    const rate = Math.round((done - this.#doneBefore) / Math.max(seconds, 0.001))
    const bar = `${'█'.repeat(filled)}${'░'.repeat(WIDTH - filled)}`
    process.stderr.write(`\r${bar} ${Math.floor(share * 100)} %  ${done} keys  ${rate}/s\x1b[K`)
  }

  /** Ends the bar's line, so that following text has a line of its own. */
  leave(): void {
    if (this.#shownAt > 0) process.stderr.write('\n')
    this.#shownAt = 0
  }

  [Symbol.dispose](): void {
    this.leave()
  }
}

const doneOf = ({ imported, existing, refused }: Counts) => imported + existing + refused
const WIDTH = 30
