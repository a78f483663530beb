import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  countKeysOf,
  FOUND_MAX,
  filterIds,
  findIdsByText,
  type KeySearch,
  type KeyState,
  type KeyUse,
  listLiveKeyspaceIds,
  walkIds,
} from './search/store.ts'
import { type KeyRow, listKeyRowsByIds } from './store.ts'

export type FoundKeys = {
  items: KeyRow[]
  /** Absent on the last page. */
  cursor?: string
  /** Keys on all pages; with a filter no more than were counted, see `isTotalExact`. */
  total: number
  /** False: there are at least `total`. */
  isTotalExact: boolean
}

/**
 * Keys of one API or of all, newest first: by id, which holds the second in which a key was made. A text is looked up in
 * indexes. Where it finds more than {@link FOUND_MAX} keys by one of them, and for a state or usage alone, keys are walked
 * through instead, a bounded number for each page: such a page may hold fewer keys than `limit`, or none, and still have a cursor.
 * @param wanted.keyspaceId Of the API; null = all of the workspace.
 * @param wanted.text Beginning of the key's text, name, id or external id.
 * @param wanted.used When it was last verified, as far as usage is kept; counts arrive with a flush, a second later.
 * @param page.cursor Of the page before; empty = the first page.
 */
export async function searchKeys(
  { sql, history, clock }: Pick<Services, 'sql' | 'history' | 'clock'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  {
    keyspaceId,
    text,
    state,
    used,
  }: { keyspaceId: string | null; text: string | null; state: KeyState | null; used: KeyUse | null },
  { limit, cursor }: { limit: number; cursor: string },
): Promise<FoundKeys> {
  const keyspaceIds = keyspaceId === null ? await listLiveKeyspaceIds(sql, workspaceId) : [keyspaceId]
  if (keyspaceIds.length === 0) return { items: [], total: 0, isTotalExact: true }
  const search: KeySearch = { keyspaceIds, text, state, used, now: clock() }
  const found = text === null ? null : await findIdsByText(sql, workspaceId, text)
  let page: { ids: string[]; next: string | null }
  let total: { total: number; isTotalExact: boolean }
  if (found !== null) {
    const ids = await filterIds(used === null ? sql : history, workspaceId, found, search)
    const left = cursor === '' ? ids : ids.filter((id) => id < cursor)
    page = { ids: left.slice(0, limit), next: left.length > limit ? (left[limit - 1] ?? null) : null }
    total = { total: ids.length, isTotalExact: true }
  } else {
    const walk = { before: cursor, limit: limit + 1 }
    const [walked, counted] = await Promise.all([
      walkIds(history, search, walk),
      countOf({ sql, history }, { workspaceId }, search),
    ])
    const isMore = walked.ids.length > limit
    page = { ids: walked.ids.slice(0, limit), next: isMore ? (walked.ids[limit - 1] ?? null) : walked.next }
    total = counted
  }
  const { rows, isCut } = await listKeyRowsByIds(sql, workspaceId, page.ids)
  const next = isCut ? (rows.at(-1)?.id ?? page.next) : page.next
  return { items: rows, ...(next !== null && { cursor: next }), ...total }
}

/** Without a filter all are counted; else up to {@link FOUND_MAX}, and no more than one walk finds. */
async function countOf(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  search: KeySearch,
): Promise<{ total: number; isTotalExact: boolean }> {
  const { text, state, used, keyspaceIds } = search
  if (text === null && state === null && used === null)
    return { total: await countKeysOf(sql, workspaceId, keyspaceIds), isTotalExact: true }
  const { ids, next } = await walkIds(history, search, { before: '', limit: FOUND_MAX })
  return { total: ids.length, isTotalExact: next === null }
}
