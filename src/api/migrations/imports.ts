import type { AnySql } from '../../db/connect.ts'
import type { ImportElement } from '../../doors/v1/keys/schema.ts'
import { badRequest } from '../../errors.ts'
import { cutText } from '../../lib/cut-text.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { KEY_HASH_WANTED, readKeyHash } from '../../lib/key-hash.ts'
import { readMeta } from '../../lib/meta.ts'
import { hashKey } from '../../verify/secret.ts'
import { type ApiRow, findApis } from '../apis/store.ts'
import { type NewKey, readRatelimit, readRefill } from '../keys/new-keys.ts'
import { findPermissionsBySlug, findRolesByName } from '../permissions/store.ts'

/** A key to import: checked, its names not yet looked up. Plain data, for the queue. */
export type ImportedKey = Omit<NewKey, 'apiId' | 'keyspaceId' | 'roles' | 'permissions'> & {
  roles: readonly string[]
  permissions: readonly string[]
}

/**
 * An element of a migration as a key, and its text when that came with it.
 * @param path Where it stands in the request, for messages.
 * @throws ApiError BAD_REQUEST without hash and plaintext, or for contradictory fields.
 */
export function readImport(
  element: ImportElement,
  path: string,
): { key: ImportedKey; plaintext: string | null } {
  const { plaintext = '', hash, prefix, expires } = element // empty texts count as absent
  const refill = readRefill(element.refill, element.remaining, { path: `${path}.refill`, lastAt: null })
  if (plaintext === '' && (hash === undefined || hash.value === ''))
    throw badRequest(`${path}: either hash or plaintext is required`)
  const ratelimit = readRatelimit(element.ratelimit, `${path}.ratelimit`)
  readMeta(element.meta, `${path}.meta`)
  const key: ImportedKey = {
    id: newId('key'),
    hash: plaintext === '' ? readHash(hash?.value ?? '', `${path}.hash.value`) : hashKey(plaintext),
    start: element.start ?? startOf(plaintext, prefix ?? ''),
    name: element.name ?? null,
    ownerId: element.ownerId || null,
    externalId: element.externalId || null,
    meta: element.meta ?? null,
    environment: element.environment ?? null,
    enabled: element.enabled ?? true,
    expiresAt: expires === undefined || expires === 0 ? null : expires,
    remaining: element.remaining ?? null,
    refill,
    ratelimit,
    roles: element.roles ?? [],
    permissions: element.permissions ?? [],
  }
  return { key, plaintext: plaintext === '' ? null : plaintext }
}

/**
 * The hash in the form that is looked up. What is long enough to be meant as a digest and is no SHA-256 would never be
 * found. Shorter texts pass: v1 took any text, and programs are tested against it with such.
 * @throws ApiError BAD_REQUEST
 */
function readHash(text: string, path: string): string {
  const hash = readKeyHash(text)
  if (hash !== null) return hash
  if (text.length >= DIGEST_CHARACTERS_MIN || SHORT_DIGEST.test(text))
    throw badRequest(`${path}: ${KEY_HASH_WANTED}`)
  return text
}
const DIGEST_CHARACTERS_MIN = 40
/** MD5 in hex; MD5 and SHA-1 in base64, which their padding tells from other texts. */
const SHORT_DIGEST = /^([0-9a-f]{32,}|[\w+/-]{22}==|[\w+/-]{27}=)$/i

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

/**
 * Each role and permission of each key is a row and an audit event: a call may name so many in all.
 * @throws ApiError BAD_REQUEST
 */
export function requireFewLinks(
  keys: readonly { roles?: readonly string[]; permissions?: readonly string[] }[],
  path: string,
): void {
  const links = keys.reduce(
    (sum, { roles = [], permissions = [] }) => sum + roles.length + permissions.length,
    0,
  )
  if (links > LINKS_MAX)
    throw badRequest(
      `${path}: the keys of a call may have ${LINKS_MAX} roles and permissions in all, these have ${links}`,
    )
}
const LINKS_MAX = 10_000

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
