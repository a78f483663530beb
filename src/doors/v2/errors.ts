import { ApiError, type Resource, UnreadableBody } from '../../errors.ts'
import { PermissionSyntaxError } from '../../verify/permission-query.ts'
import type { ProblemType } from './problems.ts'

/** One of the things that are wrong with a request. */
export type ErrorDetail = {
  readonly message: string
  /** A JSON pointer into the schema of the body, `requestBody`, or `security`. */
  readonly location: string
  readonly fix?: string
}

/** The request does not match its schema, or lacks what every request needs. */
export class InvalidRequest extends ApiError {
  override name = 'InvalidRequest'
  constructor(
    message: string,
    readonly details: readonly ErrorDetail[],
  ) {
    super('BAD_REQUEST', message)
  }
}

/** An error whose type does not follow from its code and resource. */
export class V2Error extends ApiError {
  override name = 'V2Error'
  constructor(
    readonly type: ProblemType,
    code: ApiError['code'],
    message: string,
  ) {
    super(code, message)
  }
}

/** Null = it has no type in the v2 API: no endpoint was reached. */
export function problemTypeOf(error: ApiError): ProblemType | null {
  if (error instanceof V2Error) return error.type
  if (error instanceof UnreadableBody && error.reason === 'too-large')
    return 'user/bad_request/request_body_too_large'
  if (error instanceof PermissionSyntaxError) return 'user/bad_request/permissions_query_syntax_error'
  switch (error.code) {
    case 'BAD_REQUEST':
    case 'UNSUPPORTED_MEDIA_TYPE':
      return 'unkey/application/invalid_input'
    case 'UNAUTHENTICATED':
    case 'UNAUTHORIZED':
      return 'unkey/authentication/key_not_found'
    case 'INSUFFICIENT_PERMISSIONS':
      return unlessOrdinary(error, 'unkey/authorization/insufficient_permissions')
    case 'DISABLED':
      return unlessOrdinary(error, 'unkey/authorization/key_disabled')
    case 'FORBIDDEN':
      return error.resource === 'workspace'
        ? 'unkey/authorization/workspace_disabled'
        : unlessOrdinary(error, 'unkey/authorization/forbidden')
    case 'EXPIRED':
    case 'USAGE_EXCEEDED':
      return unlessOrdinary(error, 'unkey/authorization/forbidden')
    case 'NOT_FOUND':
      return error.resource === null ? null : NOT_FOUND[error.resource]
    case 'CONFLICT':
      return (error.resource !== null && EXISTS[error.resource]) || 'unkey/application/invalid_input'
    case 'GONE':
      return 'unkey/data/ratelimit_namespace_gone'
    case 'DELETE_PROTECTED':
      return 'unkey/application/protected_resource'
    case 'PRECONDITION_FAILED':
      return 'unkey/application/precondition_failed'
    case 'RATE_LIMITED':
      return 'user/too_many_requests/workspace_rate_limited'
    case 'REQUEST_TIMEOUT':
      return 'user/bad_request/request_timeout'
    case 'INTERNAL_SERVER_ERROR':
      return 'unkey/application/unexpected_error'
    default:
      return null
  }
}

/** A key that is no root key must look like an unknown one. */
const unlessOrdinary = ({ resource }: ApiError, type: ProblemType): ProblemType =>
  resource === 'key' ? 'unkey/authentication/key_not_found' : type

const NOT_FOUND: Record<Resource, ProblemType> = {
  api: 'unkey/data/api_not_found',
  identity: 'unkey/data/identity_not_found',
  key: 'unkey/data/key_not_found',
  migration: 'unkey/data/migration_not_found',
  namespace: 'unkey/data/ratelimit_namespace_not_found',
  override: 'unkey/data/ratelimit_override_not_found',
  permission: 'unkey/data/permission_not_found',
  role: 'unkey/data/role_not_found',
  'root key': 'unkey/data/key_not_found',
  // Only v1 has watches.
  watch: 'unkey/application/unexpected_error',
  workspace: 'unkey/data/workspace_not_found',
}

const EXISTS: Partial<Record<Resource, ProblemType>> = {
  identity: 'unkey/data/identity_already_exists',
  key: 'unkey/data/key_already_exists',
  permission: 'unkey/data/permission_already_exists',
  role: 'unkey/data/role_already_exists',
}
