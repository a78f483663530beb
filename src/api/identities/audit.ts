import { changesOf } from '../../audit/changes.ts'
import type { AuditEntry } from '../../audit/log.ts'
import type { IdentityLimitRow } from './store.ts'

/** The audit event for one limit of an identity. A new limit has no `before`, a deleted one no `after`. */
export function limitEntry(
  identityId: string,
  {
    before,
    after,
  }: { before: IdentityLimitRow; after: IdentityLimitRow | null } | { before: null; after: IdentityLimitRow },
): AuditEntry {
  const { id, name } = before ?? after
  // v1 does not know it: only where a limit has or had it.
  const hasAutoApply = before?.autoApply === true || after?.autoApply === true
  const valuesOf = ({ limit, durationMs, autoApply }: IdentityLimitRow) => ({
    limit,
    duration: durationMs,
    ...(hasAutoApply ? { autoApply } : {}),
  })
  const action = before === null ? 'create' : after === null ? 'delete' : 'update'
  return {
    event: `ratelimit.${action}`,
    description: `${action}d ratelimit ${id} of identity ${identityId}`,
    resources: [
      { type: 'identity', id: identityId },
      { type: 'ratelimit', id, name, ...changesOf(before && valuesOf(before), after && valuesOf(after)) },
    ],
  }
}
