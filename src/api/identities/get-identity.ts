import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findIdentity, type IdentityName, type IdentityRow } from './store.ts'

/** An identity with its limits, or null. Tell only a caller with the right on the identity that it does not exist. */
export async function getIdentity(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: IdentityName,
): Promise<IdentityRow | null> {
  return await findIdentity(sql, workspaceId, by)
}
