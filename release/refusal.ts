/** What stops a release: one line for each reason, for the person who makes it. */
export class Refusal extends Error {
  override name = 'Refusal'
  constructor(readonly reasons: readonly string[]) {
    super(reasons.join('\n'))
  }
}
