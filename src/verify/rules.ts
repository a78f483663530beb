import { badRequest } from '../errors.ts'
import type { PermissionQuery } from './permission-query.ts'
import { parsePermissionQuery, parsePermissionWords } from './permission-query.ts'

/** What APIs that verify keys decide differently; `verify.ts` has the order of checks that all of them share. */
export type Rules = {
  /**
   * @returns null = no check.
   * @throws ApiError when the query is malformed.
   */
  readonly readPermissions: (value: unknown) => PermissionQuery | null
  /** True: a malformed query is refused even when the key's state refuses the key. */
  readonly readsPermissionsFirst: boolean
  /** True: when a limit refuses, no limit is charged. False: each is charged by itself. */
  readonly chargesTogether: boolean
  /** Whom a limit counts for that only the request defines; the key when it has no identity. */
  readonly countsAdHocFor: 'key' | 'identity'
  /** The error for a requested limit that is neither configured nor fully given. */
  readonly unknownLimit: 'BAD_REQUEST' | 'PRECONDITION_FAILED'
}

/** Verification as in Unkey's v1 API; also of root keys, and for proxies. */
export const V1_RULES: Rules = {
  readPermissions: (value) => {
    if (!value) return null // absent, null, the empty text, 0 and false
    const query = parsePermissionQuery(value)
    if (query === null) throw badRequest('authorization.permissions: Invalid permission query')
    return query
  },
  readsPermissionsFirst: false,
  chargesTogether: false,
  countsAdHocFor: 'identity',
  unknownLimit: 'BAD_REQUEST',
}

/** Verification as in Unkey's v2 API. */
export const V2_RULES: Rules = {
  readPermissions: (value) => (typeof value === 'string' ? parsePermissionWords(value) : null),
  readsPermissionsFirst: true,
  chargesTogether: true,
  countsAdHocFor: 'key',
  unknownLimit: 'PRECONDITION_FAILED',
}
