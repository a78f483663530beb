import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { hashKey } from '../verify/secret.ts'
import type { Command } from './arguments.ts'
import { CallError, type Client } from './client.ts'
import { FileError, readImportFile } from './import-file.ts'
import { onInterrupt } from './interrupt.ts'
import { UsageError } from './usage-error.ts'

/*
 * Imports keys from a file: a hundred in each call, several calls at once. `<file>.progress` has the last line up to which
 * all calls were answered, so that a stopped import continues there. Unanswered calls are sent again: a key whose hash
 * exists is not created twice, and is counted as existing, not as refused. A call is all or nothing: when it contains
 * existing keys, the others are sent again, so importing a file twice costs about as much as once. A call refused for
 * another reason is halved until the faulty lines are alone; these go to `<file>.refused`.
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
type KeyItem = { line: number; lines: number; key: Record<string, unknown> }
type Item = KeyItem | { line: number; lines: number; problem: string }
/** `lines` is set for a row that spans several lines. */
type Refused = { line: number; lines?: number; reason: string }
type Outcome = { imported: number; existing: number; refused: Refused[] }

export const importCommand: Command = {
  name: 'import',
  about: 'import existing keys from a CSV or NDJSON file, as hashes or as plain text',
  arguments: { file: 'CSV with a header line, or NDJSON' },
  options: {
    api: { value: '<id>', about: 'API of the keys that do not set one' },
    format: { value: 'csv|ndjson', about: 'default: csv for file names that end with .csv, else ndjson' },
    connections: { value: '<n>', about: 'number of parallel calls; default 4' },
  },
  example: 'import keys.csv --api api_1234',
  async run(given) {
    const path = given.argument('file')
    const format = given.text('format') ?? (path.endsWith('.csv') ? 'csv' : 'ndjson')
    if (format !== 'csv' && format !== 'ndjson') throw new UsageError('--format must be csv or ndjson')
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
  const sent: { lastLine: number; outcome: Outcome | null; done: Promise<void> }[] = []
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
  const send = async (items: Item[]) => {
    const lastLine = items.at(-1)?.line ?? 0
    const call = { lastLine, outcome: null as Outcome | null, done: Promise.resolve() } // set below
    call.done = sendAll(client, items).then((outcome) => {
      call.outcome = outcome
      reckon()
    })
    call.done.catch(() => {}) // the error goes to whichever code awaits `done`
    sent.push(call)
    const underWay = () => sent.filter(({ outcome }) => outcome === null)
    while (underWay().length >= options.connections || sent.length >= SENT_MAX)
      await Promise.race(underWay().map(({ done }) => done))
  }

  let items: Item[] = []
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

async function sendAll(client: Client, items: Item[]): Promise<Outcome> {
  const outcome: Outcome = { imported: 0, existing: 0, refused: [] }
  for (const item of items) if ('problem' in item) outcome.refused.push(refusedOf(item, item.problem))
  await sendBatch(
    client,
    items.filter((item) => 'key' in item),
    outcome,
  )
  outcome.refused.sort((a, b) => a.line - b.line)
  return outcome
}

const refusedOf = ({ line, lines }: Item, reason: string): Refused =>
  lines === 1 ? { line, reason } : { line, lines, reason }

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

/** Largest number of keys that the server takes in one call. */
const KEYS_PER_CALL = 100

/** @throws CallError when several attempts get no answer. */
async function sendBatch(client: Client, items: KeyItem[], outcome: Outcome): Promise<void> {
  const [only] = items
  if (only === undefined) return
  try {
    await sendPatiently(client, items)
    outcome.imported += items.length
  } catch (cause) {
    if (!(cause instanceof CallError) || !isAboutTheKeys(cause)) throw cause
    const existing = existingOf(cause)
    if (existing.size > 0) {
      outcome.existing += existing.size
      await sendBatch(
        client,
        items.filter((_, index) => !existing.has(index)),
        outcome,
      )
    } else if (items.length > 1) {
      const middle = Math.floor(items.length / 2)
      await sendBatch(client, items.slice(0, middle), outcome)
      await sendBatch(client, items.slice(middle), outcome)
    } else if (cause.code === 'CONFLICT') {
      outcome.existing++
    } else {
      // The message names the key's place in the call. The line number replaces it.
      outcome.refused.push(refusedOf(only, cause.message.replace(/: 0\.(?=\w)/, ': ')))
    }
  }
}

/** Places in the call of keys that exist already. Empty when the answer does not say. */
function existingOf({ code, message }: CallError): ReadonlySet<number> {
  const listed = code === 'CONFLICT' ? /: elements? (\d+(?:, \d+)*): /.exec(message)?.[1] : undefined
  return new Set(listed?.split(', ').map(Number))
}

/** False for a wrong or missing root key: then every key would be refused, and no line is at fault. */
const isAboutTheKeys = ({ status, code }: CallError) =>
  status !== null && status < 500 && status !== 403 && status !== 429 && code !== null

async function sendPatiently(client: Client, items: KeyItem[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await client.post(
        'migrations.createKeys',
        items.map(({ key }) => key),
      )
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
