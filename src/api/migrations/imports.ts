import type { AnySql } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import { cutText } from '../../lib/cut-text.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { listed } from '../../lib/listed.ts'
import type { SealedKey } from '../../vault/vault.ts'
import { hashKey } from '../../verify/secret.ts'
import { type ApiRow, findApis } from '../apis/store.ts'
import { defaultLimit, type Ratelimit } from '../keys/limits/store.ts'
import type { NewKey } from '../keys/new-keys.ts'
import type { Refill } from '../keys/refill.ts'
import type { Services } from '../parts.ts'
import { findPermissionsBySlug, findRolesByName } from '../permissions/store.ts'

/**
 * A validated key to import, its names not yet looked up. Plain data, so that it can be queued; servers of other versions
 * read what is queued.
 */
export type ImportedKey = Omit<
  NewKey,
  'apiId' | 'refill' | 'limits' | 'roles' | 'permissions' | 'ensuredSlugs'
> & {
  /** Adds credits. `lastAt` as in a new key. */
  refill: ImportedRefill | null
  ratelimit: Ratelimit | null
  roles: readonly string[]
  permissions: readonly string[]
}
type ImportedRefill = Pick<Refill, 'amount' | 'day'> & { lastAt: number | null }

/** A key as the system that it comes from knows it. */
export type KeyToImport = Omit<ImportedKey, 'id' | 'hash' | 'start' | 'refill'> & {
  /** The text, which is stored encrypted; or its hash, in the form of `lib/key-hash.ts`. */
  secret: { plaintext: string } | { hash: string }
  /** The visible beginning; null = taken from the text. */
  start: string | null
  /** Shown in `start` before the first characters, where the text begins with it and an underscore. Empty = none. */
  prefix: string
  refill: Pick<Refill, 'amount' | 'day'> | null
}

/** Gives the key its id and, if its text was sent, its text. */
export function importedKey({ secret, start, prefix, refill, ...fields }: KeyToImport): Imported {
  const plaintext = 'plaintext' in secret ? secret.plaintext : null
  const key = {
    id: newId('key'),
    hash: 'hash' in secret ? secret.hash : hashKey(secret.plaintext),
    start: start ?? startOf(plaintext ?? '', prefix),
    ...fields,
    refill: refill && { amount: refill.amount, day: refill.day, lastAt: null },
  }
  return { key, plaintext }
}
export type Imported = { key: ImportedKey; plaintext: string | null }

/** Encrypts the texts of keys that have one. @throws ApiError PRECONDITION_FAILED without a vault key. */
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

/** The first 4 characters, after the prefix and its underscore when the key has one. */
const startOf = (plaintext: string, prefix: string) =>
  cutText(plaintext, prefix !== '' && plaintext.startsWith(`${prefix}_`) ? prefix.length + 5 : 4)

/** APIs, roles and permissions that the imported keys name and that exist. */
export type ImportContext = {
  apis: ReadonlyMap<string, ApiRow>
  /** Id and name by name. */
  roles: ReadonlyMap<string, { id: string; name: string }>
  /** Id and name by slug. */
  permissions: ReadonlyMap<string, { id: string; name: string; slug: string }>
}

/** Makes three statements at most, however many keys. */
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

/** Roles and permissions of all keys of one call together: each is a row and an audit event. */
export const LINKS_MAX = 10_000

/** The API, if keys can be made in it. @throws ApiError NOT_FOUND; PRECONDITION_FAILED when it has none. */
export function requireApi({ apis }: ImportContext, id: string): { id: string } {
  const api = apis.get(id)
  if (api === undefined) throw notFound('api', id)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${id} has no keyspace`)
  return { id }
}

/** Checks every role and permission that the keys name. @throws ApiError PRECONDITION_FAILED naming the missing ones. */
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

/** The names that are not among the known ones, each once. */
export const missingOf = (names: readonly string[], known: ReadonlyMap<string, unknown>): string[] => [
  ...new Set(names.filter((name) => !known.has(name))),
]

/** The key with its names looked up. Unknown names are left out; `requireNamed` refuses them. */
export const resolveImport = (
  { ratelimit, refill, ...key }: ImportedKey,
  api: { id: string },
  { roles, permissions }: ImportContext,
): NewKey => ({
  ...key,
  apiId: api.id,
  refill: refill && { ...refill, mode: 'add' },
  limits: ratelimit === null ? [] : [defaultLimit(ratelimit)],
  roles: [...new Set(key.roles)].flatMap((name) => roles.get(name) ?? []),
  permissions: [...new Set(key.permissions)].flatMap((slug) => permissions.get(slug) ?? []),
  ensuredSlugs: [],
})
