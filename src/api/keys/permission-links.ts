import { requirePermissionBounds, sizeOfSlugs } from '../../db/bounds.ts'
import { holdPermissions, insertPermissions } from '../permissions/store.ts'
import type { LinkKind } from './links.ts'
import { deleteKeyPermissions, insertKeyPermissions, listKeyPermissions } from './store.ts'

/** Permissions are unique by slug. A permission created here gets its slug as name. */
export const permissionLinks: LinkKind = {
  noun: 'permission',
  idPrefix: 'perm',
  hold: async (tx, workspaceId, { ids, texts }) =>
    (await holdPermissions(tx, workspaceId, { ids, slugs: texts })).map(candidate),
  listAttached: async (tx, workspaceId, keyId) =>
    (await listKeyPermissions(tx, workspaceId, keyId)).map(candidate),
  insert: (tx, workspaceId, made, now) =>
    insertPermissions(
      tx,
      workspaceId,
      made.map(({ id, name, text }) => ({ id, name, slug: text, description: null })),
      now,
    ),
  requireBounds: (tx, workspaceId, { before, after }) =>
    requirePermissionBounds(tx, workspaceId, {
      of: 'Key',
      before: sizeOfSlugs(before),
      after: sizeOfSlugs(after),
    }),
  attach: (tx, workspaceId, keyId, ids, now) =>
    insertKeyPermissions(
      tx,
      workspaceId,
      ids.map((permissionId) => ({ keyId, permissionId })),
      now,
    ),
  detach: deleteKeyPermissions,
}

const candidate = ({ id, name, slug }: { id: string; name: string; slug: string }) => ({
  id,
  name,
  text: slug,
})
