/** A mistake in the command line. It ends with status 2 and one hint. */
export class UsageError extends Error {
  override name = 'UsageError'
  /** What to do about it; null = see the command's help. */
  readonly hint: string | null

  constructor(message: string, { hint = null }: { hint?: string | null } = {}) {
    super(message)
    this.hint = hint
  }
}
