import { audit } from '../../audit/log.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { KEY_IMPORTS } from './import-queue.ts'
import {
  countKeyImports,
  discardFailedImports,
  type FailedImportRow,
  type HandledImport,
  listFailedImports,
  retryFailedImports,
} from './store.ts'

/** More are not counted: it would take longer the more there are. */
export const IMPORTS_COUNTED_MAX = 10_000

/**
 * Queued keys of the workspace that were given up, oldest first, and how many wait.
 * @param page.cursor The id of an import; empty = from the first.
 * @returns counts to {@link IMPORTS_COUNTED_MAX}.
 */
export async function listImports(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { limit, after }: { limit: number; after: string },
): Promise<{ items: FailedImportRow[]; waiting: number; failed: number; cursor?: string }> {
  const [rows, counts] = await Promise.all([
    listFailedImports(history, workspaceId, { after, rows: limit + 1 }),
    countKeyImports(history, workspaceId, IMPORTS_COUNTED_MAX),
  ])
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, ...counts, ...(rows.length > limit && last !== undefined ? { cursor: last.id } : {}) }
}

/**
 * Queues given-up imports again, as if they were new. Ids of others are ignored.
 * @returns how many.
 * @throws ApiError PRECONDITION_FAILED at the bound of queued imports; then none is queued.
 */
export async function retryImports(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  ids: readonly string[],
): Promise<number> {
  return await services.database.write(async (tx, invalidate) => {
    const rows = await retryFailedImports(tx, actor.workspaceId, { ids, now: services.clock() })
    if (rows.length === 0) return 0
    await audit(tx, actor, [eventOf('import.retry', 'queued again', rows)])
    invalidate(KEY_IMPORTS) // wakes the importers of all processes
    return rows.length
  })
}

/** Removes given-up imports for good. Ids of others are ignored. @returns how many. */
export async function discardImports(
  services: Pick<Services, 'database'>,
  actor: Actor,
  ids: readonly string[],
): Promise<number> {
  return await services.database.write(async (tx) => {
    const rows = await discardFailedImports(tx, actor.workspaceId, ids)
    if (rows.length > 0) await audit(tx, actor, [eventOf('import.discard', 'discarded', rows)])
    return rows.length
  })
}

const eventOf = (event: 'import.retry' | 'import.discard', verb: string, rows: readonly HandledImport[]) => ({
  event,
  description: `${verb} ${rows.length} failed imports`,
  resources: rows.map(({ keyId, id, migrationId }) => ({
    type: 'import',
    id: keyId,
    meta: { importId: id, migrationId },
  })),
})
