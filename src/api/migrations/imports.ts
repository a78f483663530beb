import type { AnySql } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import { cutText } from '../../lib/cut-text.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { listed } from '../../lib/listed.ts'
import type { SealedKey } from '../../vault/vault.ts'
import { hashKey } from '../../verify/secret.ts'
import { type ApiRow, findApis } from '../apis/store.ts'
import type { NewKey, Refill } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import { findPermissionsBySlug, findRolesByName } from '../permissions/store.ts'

/** A key to import: checked, its names not yet looked up. Plain data, for the queue. */
export type ImportedKey = Omit<NewKey, 'apiId' | 'keyspaceId' | 'roles' | 'permissions'> & {
  roles: readonly string[]
  permissions: readonly string[]
}

/** A key as another system knows it. */
export type KeyToImport = Omit<ImportedKey, 'id' | 'hash' | 'start' | 'refill'> & {
  /** The text, which is then kept encrypted; or its hash, in the form of `lib/key-hash.ts`. */
  secret: { plaintext: string } | { hash: string }
  /** The visible beginning; null = the first characters of the text. */
  start: string | null
  /** Characters that `start` shows besides, where the text begins with them and an underscore; empty = none. */
  prefix: string
  refill: Refill | null
}

/** The key with the id that it gets, and its text when that came with it. */
export function importedKey({ secret, start, prefix, refill, ...fields }: KeyToImport): Imported {
  const plaintext = 'plaintext' in secret ? secret.plaintext : null
  const key = {
    id: newId('key'),
    hash: 'hash' in secret ? secret.hash : hashKey(secret.plaintext),
    start: start ?? startOf(plaintext ?? '', prefix),
    ...fields,
    refill: refill && { ...refill, lastAt: null },
  }
  return { key, plaintext }
}
export type Imported = { key: ImportedKey; plaintext: string | null }

/** Seals the texts of those that came with one. @throws ApiError PRECONDITION_FAILED without a vault key. */
export async function sealTexts(
  { vault }: Pick<Services, 'vault'>,
  workspaceId: WorkspaceId,
  imported: readonly Imported[],
): Promise<SealedKey[]> {
  const texts = imported.flatMap(({ key, plaintext }) =>
    plaintext === null ? [] : { keyId: key.id, plaintext },
  )
  return texts.length === 0 ? [] : await vault.seal(workspaceId, texts)
}

/** The first 4 characters, behind the prefix and its underscore when the key has one. */
const startOf = (plaintext: string, prefix: string) =>
  cutText(plaintext, prefix !== '' && plaintext.startsWith(`${prefix}_`) ? prefix.length + 5 : 4)

/** What imported keys name and the database knows. */
export type ImportContext = {
  apis: ReadonlyMap<string, ApiRow>
  /** Id and name by name. */
  roles: ReadonlyMap<string, { id: string; name: string }>
  /** Id and name by slug. */
  permissions: ReadonlyMap<string, { id: string; name: string; slug: string }>
}

/** Three statements at most, however many keys. */
export async function readImportContext(
  sql: AnySql,
  workspaceId: WorkspaceId,
  wanted: {
    apiIds: readonly string[]
    keys: readonly { roles?: readonly string[]; permissions?: readonly string[] }[]
  },
): Promise<ImportContext> {
  const names = new Set(wanted.keys.flatMap(({ roles = [] }) => roles))
  const slugs = new Set(wanted.keys.flatMap(({ permissions = [] }) => permissions))
  const apis = await findApis(sql, workspaceId, [...new Set(wanted.apiIds)])
  const roles = names.size === 0 ? [] : await findRolesByName(sql, workspaceId, [...names])
  const permissions = slugs.size === 0 ? [] : await findPermissionsBySlug(sql, workspaceId, [...slugs])
  return {
    apis,
    roles: new Map(roles.map((role) => [role.name, role])),
    permissions: new Map(permissions.map((permission) => [permission.slug, permission])),
  }
}

/** Each role and permission of each key is a row and an audit event: the keys of a call may have so many in all. */
export const LINKS_MAX = 10_000

/** The keyspace that keys of that API live in. @throws ApiError NOT_FOUND; PRECONDITION_FAILED when it holds no keys. */
export function requireApi({ apis }: ImportContext, id: string): { id: string; keyspaceId: string } {
  const api = apis.get(id)
  if (api === undefined) throw notFound(`api ${id}`)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${id} has no keyspace`)
  return { id, keyspaceId }
}

/** Every role and permission that one of the keys names. @throws ApiError PRECONDITION_FAILED naming what is missing. */
export function requireNamed(
  { roles, permissions }: ImportContext,
  keys: readonly { roles?: readonly string[]; permissions?: readonly string[] }[],
): void {
  const roleNames = keys.flatMap(({ roles = [] }) => roles)
  refuse('roles', missingOf(roleNames, roles))
  const slugs = keys.flatMap(({ permissions = [] }) => permissions)
  refuse('permissions', missingOf(slugs, permissions))
}

function refuse(kind: string, missing: readonly string[]): void {
  if (missing.length > 0) throw new ApiError('PRECONDITION_FAILED', `${kind} not found: ${listed(missing)}`)
}

/** Names that none of the known ones has, each once. */
export const missingOf = (names: readonly string[], known: ReadonlyMap<string, unknown>): string[] => [
  ...new Set(names.filter((name) => !known.has(name))),
]

/** The key with its names looked up; those that are unknown are left out: the caller has refused them. */
export const resolveImport = (
  key: ImportedKey,
  api: { id: string; keyspaceId: string },
  { roles, permissions }: ImportContext,
): NewKey => ({
  ...key,
  apiId: api.id,
  keyspaceId: api.keyspaceId,
  roles: [...new Set(key.roles)].flatMap((name) => roles.get(name) ?? []),
  permissions: [...new Set(key.permissions)].flatMap((slug) => permissions.get(slug) ?? []),
})
