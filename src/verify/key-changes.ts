import { OwnerChanges, ownerChange } from '../records/owner-changes.ts'
import type { KeyRecord } from './key-record.ts'

/** Names the keys with a role among what a write touched. */
export const roleName = (workspaceId: string, name: string): string =>
  ownerChange(workspaceId, `role ${name}`)

/** Names the keys with a permission, direct or through roles. */
export const permissionName = (workspaceId: string, slug: string): string =>
  ownerChange(workspaceId, `permission ${slug}`)

/** Changes of roles and permissions, for the cache of keys. */
export const openKeyChanges = (): OwnerChanges<KeyRecord> =>
  new OwnerChanges({
    ownerOf: ({ workspaceId, forWorkspaceId }) => forWorkspaceId ?? workspaceId,
    isConcerned: (record, change) => {
      const space = change.indexOf(' ')
      const name = change.slice(space + 1)
      return change.startsWith('role') ? record.roles.includes(name) : record.permissions.has(name)
    },
  })
