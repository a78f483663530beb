import { requireBound } from '../../db/bounds.ts'
import { holdRoles, insertRoles } from '../permissions/store.ts'
import type { LinkKind } from './links.ts'
import { deleteKeyRoles, insertKeyRoles, listKeyRoles } from './store.ts'

/** Roles are unique by name. */
export const roleLinks: LinkKind = {
  noun: 'role',
  idPrefix: 'role',
  hold: async (tx, workspaceId, { ids, texts }) =>
    (await holdRoles(tx, workspaceId, { ids, names: texts })).map(candidate),
  listAttached: async (tx, workspaceId, keyId) => (await listKeyRoles(tx, workspaceId, keyId)).map(candidate),
  insert: (tx, workspaceId, made, now) =>
    insertRoles(
      tx,
      workspaceId,
      made.map(({ id, name }) => ({ id, name, description: null })),
      now,
    ),
  requireBounds: async (tx, workspaceId, { before, after }) => {
    if (after.length > before.length)
      await requireBound(tx, workspaceId, { name: 'rolesPerKey', rows: after.length })
  },
  attach: (tx, workspaceId, keyId, ids, now) =>
    insertKeyRoles(
      tx,
      workspaceId,
      ids.map((roleId) => ({ keyId, roleId })),
      now,
    ),
  detach: deleteKeyRoles,
}

const candidate = ({ id, name }: { id: string; name: string }) => ({ id, name, text: name })
