import { Value } from '@sinclair/typebox/value'
import type { SpillFile } from '../data-dir/spill.ts'
import type { AnySql } from '../db/connect.ts'
import { UsageBatch, type UsageColumns } from '../usage/batch.ts'
import { erasedNames } from './store.ts'

/**
 * Puts pseudonyms into spill files, including refused ones. Postgres applies pseudonyms to usage anyway, but until a file
 * is sent the names would stay on the disk.
 */
export async function eraseFromSpills(sql: AnySql, files: Iterable<SpillFile>): Promise<void> {
  for (const { value, rewrite } of files) {
    if (!Value.Check(UsageBatch, value)) continue // spilled windows contain only hashes
    const columns = await withoutNames(sql, value.columns)
    if (columns !== null) rewrite({ ...value, columns })
  }
}

/** @returns null when none of the names is erased. */
async function withoutNames(sql: AnySql, columns: UsageColumns): Promise<UsageColumns | null> {
  const { scopes, sets, verifications, totals, identifiers } = columns
  const keyId =
    verifications.keyIds === undefined
      ? verifications.keyId
      : verifications.keyIds.list.split(',').map((id) => id.trim())
  const renamed = async (workspaceIds: string[], places: number[], names: string[]) =>
    names.length === 0 ? names : await erasedNames(sql, workspaceIds, places, names)
  const keyIds = await renamed(scopes.workspaceId, verifications.scope, keyId)
  const identityIds = await renamed(scopes.workspaceId, verifications.scope, verifications.identityId)
  const named = await renamed(totals.workspaceId, identifiers.total, identifiers.identifier)
  const tags: string[][] = []
  for (const [at, list] of sets.tags.entries()) tags.push(await renamed(sets.workspaceId, [at + 1], list))
  const isSame = Bun.deepEquals(
    [keyIds, identityIds, named, tags],
    [keyId, verifications.identityId, identifiers.identifier, sets.tags],
  )
  if (isSame) return null
  const { keyIds: _, ...others } = verifications
  return {
    ...columns,
    sets: { ...sets, tags },
    verifications: { ...others, keyId: keyIds, identityId: identityIds },
    identifiers: { ...identifiers, identifier: named },
  }
}
