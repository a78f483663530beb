import { signal } from '@preact/signals'
import {
  FileError,
  type ImportField,
  type ImportFormat,
  type ImportRecord,
  readImport,
} from '../../lib/imports/read-import.ts'
import {
  checkItems,
  type ImportItem,
  KEYS_PER_CALL,
  type RefusedLine,
  type SentKeys,
  sendKeys,
} from '../../lib/imports/send-keys.ts'
import { CallFailed, call } from './api.ts'

/*
 * An import from the browser. The file is read in pieces and nothing of it is kept: not in the address, not in the browser's
 * storage, and in memory no more than a call. So the same file again begins at its first line, and what exists is counted,
 * not made twice. It goes on while other screens are shown.
 */

/** What is imported, and how. */
export type ImportJob = {
  workspaceId: string
  file: File
  format: ImportFormat
  /** Of keys that name none; null = each names one. */
  apiId: string | null
  /** Of a CSV: the field of each column, null = left out. */
  columns: readonly (ImportField | null)[] | null
}

export type ImportRun = {
  job: ImportJob
  phase: 'running' | 'stopped' | 'done'
  /** Why it waits or was stopped by itself; null = it did not. */
  trouble: string | null
  /** Everything up to this line is answered. */
  line: number
  bytesRead: number
  imported: number
  existing: number
  refused: number
  /** The first {@link REFUSED_KEPT_MAX} of them. */
  refusedLines: readonly RefusedLine[]
}

/** The import of this page; null = none was started. */
export const importRun = signal<ImportRun | null>(null)

/** Refused lines of which the reason is kept: some 2 MB. */
export const REFUSED_KEPT_MAX = 10_000

let stopping = new AbortController()

/** Starts an import, or goes on with one that was stopped. */
export async function startImport(from: ImportJob | ImportRun): Promise<void> {
  const begun: ImportRun =
    'job' in from
      ? { ...from, phase: 'running', trouble: null }
      : {
          ...{ job: from, phase: 'running', trouble: null, line: 0, bytesRead: 0 },
          ...{ imported: 0, existing: 0, refused: 0, refusedLines: [] },
        }
  stopping = new AbortController()
  const { signal: stop } = stopping
  importRun.value = begun
  try {
    for await (const batch of batchesOf(begun.job, begun.line)) {
      if (stop.aborted) break
      const sent = await sendKeys(batch.items, (keys) => createAll(begun.job, { keys, stop }))
      importRun.value = afterBatch(importRun.value ?? begun, batch, sent)
    }
    change(stop.aborted ? { phase: 'stopped' } : { phase: 'done', bytesRead: begun.job.file.size })
  } catch (cause) {
    change({ phase: 'stopped', trouble: stop.aborted ? null : wordsOf(cause) })
  }
}

/** Ends after the call that is under way. */
export const stopImport = (): void => stopping.abort()

/** Forgets an import that ended or was stopped. */
export const forgetImport = (): void => {
  importRun.value = null
}

/** What an import of the first lines would do, by `migrations.checkKeys`. Changes nothing. */
export async function checkImport(job: ImportJob): Promise<{ found: SentKeys; lines: number }> {
  for await (const { items } of batchesOf(job, 0)) {
    const found = await checkItems(items, async (keys) => {
      const reply = await call('migrations.checkKeys', { keys }, { workspaceId: job.workspaceId })
      return reply.keys
    })
    return { found, lines: items.length }
  }
  return { found: { imported: 0, existing: 0, refused: [] }, lines: 0 }
}

const change = (to: Partial<ImportRun>) => {
  if (importRun.value !== null) importRun.value = { ...importRun.value, ...to }
}

const afterBatch = (run: ImportRun, batch: Batch, sent: SentKeys): ImportRun => ({
  ...run,
  trouble: null,
  line: batch.lastLine,
  bytesRead: batch.bytesRead,
  imported: run.imported + sent.imported,
  existing: run.existing + sent.existing,
  refused: run.refused + sent.refused.length,
  refusedLines: [...run.refusedLines, ...sent.refused.slice(0, REFUSED_KEPT_MAX - run.refusedLines.length)],
})

type Batch = { items: ImportItem[]; lastLine: number; bytesRead: number }

/** The keys after a line, as many at a time as a call takes. */
async function* batchesOf(job: ImportJob, after: number): AsyncGenerator<Batch> {
  let items: ImportItem[] = []
  let last = { lastLine: 0, bytesRead: 0 }
  for await (const { text: _, bytesRead, ...record } of recordsOf(job)) {
    if ('skipped' in record || record.line <= after) continue
    items.push('key' in record ? { ...record, key: withApi(job, record.key) } : record)
    last = { lastLine: record.line, bytesRead }
    if (items.length < KEYS_PER_CALL) continue
    yield { items, ...last }
    items = []
  }
  if (items.length > 0) yield { items, ...last }
}

const withApi = ({ apiId }: ImportJob, key: Record<string, unknown>) =>
  apiId === null ? key : { apiId, ...key }

const recordsOf = ({ file, format, apiId, columns }: ImportJob): AsyncGenerator<ImportRecord> =>
  readImport(chunksOf(file), format, { hasApi: apiId !== null, ...(columns !== null && { columns }) })

/** The bytes of a file, as the browser reads them. It holds one piece at a time. */
export async function* chunksOf(file: Blob): AsyncGenerator<Uint8Array> {
  const reader = file.stream().getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    reader.cancel().catch(() => {}) // the rest is not wanted
  }
}

/** Creates all keys of a call or none, and waits about a minute for a server that is away. */
async function createAll(
  { workspaceId }: ImportJob,
  { keys, stop }: { keys: readonly Record<string, unknown>[]; stop: AbortSignal },
): Promise<{ code: string; message: string } | null> {
  for (let attempt = 0; ; attempt++) {
    try {
      await call('migrations.createKeys', keys, { workspaceId })
      return null
    } catch (cause) {
      if (!(cause instanceof CallFailed)) throw cause
      const { status, code, message } = cause
      if (status !== 0 && status < 500) {
        if (status === 401 || status === 403 || status === 429 || code === 'UNAUTHENTICATED') throw cause
        return { code, message } // about the keys
      }
      const pauseMs = PAUSES_MS[attempt]
      if (pauseMs === undefined || stop.aborted) throw cause
      change({ trouble: `${message} Trying again…` })
      await pause(pauseMs, stop)
    }
  }
}

const PAUSES_MS = [500, 1000, 2000, 4000, ...Array.from({ length: 11 }, () => 5000)]

const pause = (ms: number, stop: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    stop.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })

/** Why a file could not be read or sent, for people. */
export function wordsOf(cause: unknown): string {
  if (cause instanceof FileError) return `${cause.message.charAt(0).toUpperCase()}${cause.message.slice(1)}.`
  if (cause instanceof DOMException)
    return 'The file can no longer be read: it was changed, moved or deleted. Choose it again.'
  return cause instanceof Error ? cause.message : String(cause)
}

/**
 * Refused lines as they are in the file, each with its number and the reason, to correct and to import again. Reads the file
 * once more, so that no line has to be kept.
 */
export async function refusedFile({
  job,
  refusedLines,
}: ImportRun): Promise<{ name: string; content: Blob }> {
  const reasons = new Map(refusedLines.map((each) => [each.line, each.reason]))
  const name = job.file.name.replace(/\.[^.]*$/, '')
  const parts: Uint8Array<ArrayBuffer>[] = []
  const encoder = new TextEncoder()
  let hasHead = job.format === 'ndjson'
  for await (const { line, text } of recordsOf(job)) {
    const raw = text.replace(/[\r\n]+$/, '')
    const reason = reasons.get(line)
    // Encoded at once: a part of a text would keep all of it.
    if (!hasHead && raw.trim() !== '') {
      parts.push(encoder.encode(`${raw},tollgate_line,tollgate_reason\r\n`))
      hasHead = true
    } else if (reason !== undefined)
      parts.push(
        encoder.encode(job.format === 'csv' ? csvLine(raw, line, reason) : jsonLine(raw, line, reason)),
      )
  }
  const type = job.format === 'csv' ? 'text/csv' : 'application/x-ndjson'
  return { name: `${name}.refused.${job.format}`, content: new Blob(parts, { type }) }
}

const csvLine = (raw: string, line: number, reason: string) =>
  `${raw},${line},"${reason.replaceAll('"', '""')}"\r\n`

/** A line that is no object stands as a text in one. */
function jsonLine(raw: string, line: number, reason: string): string {
  const about = { tollgate_line: line, tollgate_reason: reason }
  try {
    const value: unknown = JSON.parse(raw)
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return `${JSON.stringify({ ...about, ...value })}\n`
  } catch {
    // It is no JSON, which is what the reason says.
  }
  return `${JSON.stringify({ ...about, tollgate_text: raw })}\n`
}
