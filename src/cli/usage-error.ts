/** What was typed wrongly: the command line ends with status 2 and one hint. */
export class UsageError extends Error {
  override name = 'UsageError'
  /** What to do about it; null = the command's help tells. */
  readonly hint: string | null

  constructor(message: string, { hint = null }: { hint?: string | null } = {}) {
    super(message)
    this.hint = hint
  }
}
