import type { AuditEntry } from '../audit/log.ts'

/** What happened to one limit of an identity. */
export const limitEntry = (
  action: 'create' | 'update' | 'delete',
  identityId: string,
  { id, name }: { id: string; name: string },
): AuditEntry => ({
  event: `ratelimit.${action}`,
  description: `${action}d ratelimit ${id} of identity ${identityId}`,
  resources: [
    { type: 'identity', id: identityId },
    { type: 'ratelimit', id, name },
  ],
})
