/*
 * Sends keys of a file to `migrations.createKeys`, for `tollgate import` and the dashboard. A call is all or nothing: when it
 * contains keys that exist, the others are sent again, so importing a file twice costs about as much as once, and makes no
 * key twice. A call refused for another reason is halved until the faulty lines are alone.
 */

/** Largest number of keys that the server takes in one call. */
export const KEYS_PER_CALL = 100

export type KeyItem = { line: number; lines: number; key: Record<string, unknown> }
/** A part of the file that is to be imported: a key, or lines that cannot be one. */
export type ImportItem = KeyItem | { line: number; lines: number; problem: string }
/** `lines` is set for a row that spans several lines. */
export type RefusedLine = { line: number; lines?: number; reason: string }
export type SentKeys = { imported: number; existing: number; refused: RefusedLine[] }
/** Why the server refused keys: its error code, and its message. */
export type Refusal = { code: string; message: string }
/** Creates all of the keys or none. @returns null when they were created. Throws when no key is at fault. */
export type CreateAll = (keys: readonly Record<string, unknown>[]) => Promise<Refusal | null>

/** @param items At most {@link KEYS_PER_CALL}. @throws whatever `createAll` throws; some keys may have been created then. */
export async function sendKeys(items: readonly ImportItem[], createAll: CreateAll): Promise<SentKeys> {
  const sent: SentKeys = { imported: 0, existing: 0, refused: [] }
  for (const item of items) if ('problem' in item) sent.refused.push(refusedLine(item, item.problem))
  await sendBatch(
    items.filter((item) => 'key' in item),
    { createAll, sent },
  )
  sent.refused.sort((a, b) => a.line - b.line)
  return sent
}

export const refusedLine = ({ line, lines }: { line: number; lines: number }, reason: string): RefusedLine =>
  lines === 1 ? { line, reason } : { line, lines, reason }

async function sendBatch(
  items: readonly KeyItem[],
  { createAll, sent }: { createAll: CreateAll; sent: SentKeys },
): Promise<void> {
  const [only] = items
  if (only === undefined) return
  const refusal = await createAll(items.map(({ key }) => key))
  if (refusal === null) {
    sent.imported += items.length
    return
  }
  const existing = existingOf(refusal)
  if (existing.size > 0) {
    sent.existing += existing.size
    await sendBatch(
      items.filter((_, index) => !existing.has(index)),
      { createAll, sent },
    )
  } else if (items.length > 1) {
    const middle = Math.floor(items.length / 2)
    await sendBatch(items.slice(0, middle), { createAll, sent })
    await sendBatch(items.slice(middle), { createAll, sent })
  } else if (refusal.code === 'CONFLICT') {
    sent.existing++
  } else {
    // The message names the key's place in the call. The line number replaces it.
    sent.refused.push(refusedLine(only, refusal.message.replace(/(^|: )0(?:\.(?=\w)|: )/, '$1')))
  }
}

/** Places in the call of keys that exist already. Empty when the answer does not say. */
function existingOf({ code, message }: Refusal): ReadonlySet<number> {
  const listed = code === 'CONFLICT' ? /(?:^|: )elements? (\d+(?:, \d+)*): /.exec(message)?.[1] : undefined
  return new Set(listed?.split(', ').map(Number))
}

/** What `migrations.checkKeys` says of one key. */
export type CheckedKey = { outcome: 'new' | 'exists' | 'refused'; reason?: string | undefined }

/**
 * What an import of these items would do, by `migrations.checkKeys`.
 * @param items At most {@link KEYS_PER_CALL}.
 */
export async function checkItems(
  items: readonly ImportItem[],
  check: (keys: readonly Record<string, unknown>[]) => Promise<readonly CheckedKey[]>,
): Promise<SentKeys> {
  const found: SentKeys = { imported: 0, existing: 0, refused: [] }
  const keys = items.filter((item) => 'key' in item)
  const checked = keys.length === 0 ? [] : await check(keys.map(({ key }) => key))
  for (const item of items) if ('problem' in item) found.refused.push(refusedLine(item, item.problem))
  for (const [index, { outcome, reason = '' }] of checked.entries()) {
    const item = keys[index]
    if (item === undefined) break
    if (outcome === 'new') found.imported++
    else if (outcome === 'exists') found.existing++
    else found.refused.push(refusedLine(item, reason))
  }
  found.refused.sort((a, b) => a.line - b.line)
  return found
}
