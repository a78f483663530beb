import type { Static } from '@sinclair/typebox'
import type { IdentityRow } from '../../../api/identities/store.ts'
import { limitObject } from '../limits.ts'
import { metaOf } from '../meta.ts'
import type { Identity } from '../schema.ts'

/** An identity without what is empty. */
export function identityObject(row: IdentityRow): Static<typeof Identity> {
  const { id, externalId, limits } = row
  const meta = metaOf(row.meta)
  return {
    id,
    externalId,
    ...(meta === null ? {} : { meta }),
    ...(limits.length === 0 ? {} : { ratelimits: limits.map(limitObject) }),
  }
}
