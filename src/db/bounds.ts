import { ApiError } from '../errors.ts'
import type { WorkspaceId } from '../lib/ids.ts'
import { BOUND_NAMES, type Bounds, type RefusingBound } from '../lib/workspace-bounds.ts'
import type { AnySql } from './connect.ts'

/**
 * A workspace has reached one of its bounds. The database counts and refuses (sql/0012); this is the error for the caller.
 */
export class BoundReached extends ApiError {
  override name = 'BoundReached'
  constructor(
    readonly workspaceId: string,
    readonly bound: RefusingBound,
    { used, value }: { used: number; value: number },
  ) {
    super(
      'PRECONDITION_FAILED',
      `${TEXTS[bound]}: at most ${value}, ${isOfOnePlace(bound) ? `this call would make it ${used}` : `in use ${used}`}. The operator can raise the bound "${bound}" (TOLLGATE_BOUNDS, workspaces.updateWorkspace)`,
    )
  }
}

/** True for bounds within one key, role or namespace: the rest of the workspace may still have room. */
export const isOfOnePlace = (bound: RefusingBound): boolean => bound.includes('Per')

/** Says which bound is reached. */
const TEXTS: Record<RefusingBound, string> = {
  apis: 'the workspace has no room for more APIs',
  keys: 'the workspace has no room for more keys',
  rootKeys: 'the workspace has no room for more root keys',
  identities: 'the workspace has no room for more identities',
  namespaces: 'the workspace has no room for more namespaces',
  overrides: 'the workspace has no room for more overrides',
  overridesPerNamespace: 'the namespace has no room for more overrides',
  innerPatternsPerNamespace: 'the namespace has no room for more overrides with text between two stars',
  roles: 'the workspace has no room for more roles',
  permissions: 'the workspace has no room for more permissions',
  rolesPerKey: 'the key has no room for more roles',
  permissionsPerKey: 'the key has no room for more permissions',
  permissionBytesPerKey: 'the slugs of the permissions of the key are too long in all',
  permissionsPerRole: 'the role has no room for more permissions',
  permissionBytesPerRole: 'the slugs of the permissions of the role are too long in all',
  queuedImports: 'the workspace has no room for more queued imports',
  workspaces: 'the server has no room for more workspaces',
}

/** The refusal behind a failed statement; null when it failed for another reason. */
export function boundReachedBy(cause: unknown): BoundReached | null {
  if (!(cause instanceof Error && 'code' in cause && cause.code === 'TGB01' && 'detail' in cause)) return null
  const { workspaceId, name, used, value } = JSON.parse(String(cause.detail)) as {
    workspaceId: string
    name: RefusingBound
    used: number
    value: number
  } // the database function refuse_beyond_bound wrote it
  return new BoundReached(workspaceId, name, { used, value })
}

/**
 * Refuses more rows in one place (a namespace, a key) than its bound. Call it under the lock of that place.
 * @throws an error that {@link boundReachedBy} recognises.
 */
export async function requireBound(
  tx: AnySql,
  workspaceId: string,
  { name, rows }: { name: RefusingBound; rows: number },
): Promise<void> {
  await tx`select require_bound(${workspaceId}, ${name}, ${rows})`
}

/**
 * Refuses permissions of one key or role that exceed the bound and grow, in number or in bytes of slugs. Existing excess is
 * allowed. Call it under the lock of the key or role.
 */
export async function requirePermissionBounds(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { of, before, after }: { of: 'Key' | 'Role'; before: SlugsSize; after: SlugsSize },
): Promise<void> {
  const rows = after.rows > before.rows ? after.rows : 0
  const bytes = after.bytes > before.bytes ? after.bytes : 0
  if (rows + bytes > 0)
    await tx`
      select require_bound(${workspaceId}, ${`permissionsPer${of}`}, ${rows}),
             require_bound(${workspaceId}, ${`permissionBytesPer${of}`}, ${bytes})`
}

/** Number and bytes of the slugs of one key or role. */
export type SlugsSize = { rows: number; bytes: number }

export const sizeOfSlugs = (slugs: readonly string[]): SlugsSize => ({
  rows: slugs.length,
  bytes: bytesOfSlugs(slugs),
})

export const bytesOfSlugs = (slugs: readonly string[]) =>
  slugs.reduce((sum, slug) => sum + Buffer.byteLength(slug), 0)

/**
 * Subtracts rows from a workspace's count, for tables without a trigger (see `count_keys` in sql/0012).
 * @param rows How many rows were removed.
 */
export async function countGone(
  tx: AnySql,
  workspaceId: string,
  { name, rows }: { name: RefusingBound; rows: number },
): Promise<void> {
  if (rows > 0) await tx`select count_rows(${workspaceId}, ${name}, ${-rows}::bigint)`
}

/** Sets the bounds of all workspaces. Of several servers on one database, the one that started last decides. */
export async function setBounds(tx: AnySql, bounds: Bounds): Promise<void> {
  const changed = await tx<{ name: string }[]>`
    insert into bounds (name, value)
    select b.name, b.value
      from unnest(${BOUND_NAMES as string[]}::text[], ${BOUND_NAMES.map((name) => bounds[name])}::bigint[]) as b (name, value)
     order by b.name collate "C"
        on conflict (name) do update set value = excluded.value where bounds.value <> excluded.value
    returning name`
  if (changed.length > 0)
    await takeBackRoom(tx, { names: changed.map(({ name }) => name), workspaceId: null })
}

/** Sets one workspace's own bounds; null = those of all workspaces. The caller holds the lock of its row. */
export async function setOwnBounds(
  tx: AnySql,
  workspaceId: string,
  bounds: Partial<Bounds> | null,
): Promise<void> {
  const text = bounds === null ? null : JSON.stringify(bounds)
  await tx`update workspaces set bounds = ${text}::text::jsonb where id = ${workspaceId}`
  await takeBackRoom(tx, { names: BOUND_NAMES, workspaceId })
}

/** Takes back room reserved under the old bounds: the next insert reserves it again. */
async function takeBackRoom(
  tx: AnySql,
  { names, workspaceId }: { names: readonly string[]; workspaceId: string | null },
): Promise<void> {
  const ofWorkspace = workspaceId === null ? tx`` : tx`and workspace_id = ${workspaceId}`
  await tx`
    select 1 from workspace_counts where name = any(${names as string[]}::text[]) ${ofWorkspace}
     order by workspace_id, name, part for update`
  await tx`update workspace_counts set room = 0 where name = any(${names as string[]}::text[]) ${ofWorkspace}`
}
