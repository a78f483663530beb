import type { WorkspaceId } from '../lib/ids.ts'

/** A call, as far as an operation may know it: nothing of the protocol. */
export type Call = {
  /** `req_…`; the same in answers and in logs. */
  readonly requestId: string
  /** The Authorization header as sent, or its counterpart in the protocol. Null when absent. */
  readonly authorization: string | null
  /** Hash of the root key of a session, which replaces the Authorization header. Such a call charges the root key nothing. */
  readonly sessionHash?: string | null
  readonly userAgent: string | null
  /** The client's address as text, for allow lists and the audit log. Null when unknown. */
  clientAddress(): string | null
  /** Runs once the caller is known, before anything that the call asks for. What it throws ends the call. */
  admit?: ((workspaceId: WorkspaceId) => Promise<void>) | undefined
}
