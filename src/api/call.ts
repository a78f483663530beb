/** Who calls, as far as an operation may know: nothing of the protocol that the call came by. */
export type Call = {
  /** `req_…`; the same in answers and in logs. */
  readonly requestId: string
  /** The Authorization header as sent, or what a door has in its place; null when absent. */
  readonly authorization: string | null
  readonly userAgent: string | null
  /** The client's address as text, for allow lists and the audit log; null when it is not known. */
  clientAddress(): string | null
}
