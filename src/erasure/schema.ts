import { type Static, Type } from '@sinclair/typebox'

export const EraseReply = Type.Object({
  pseudonym: Type.String({
    description: 'Random; stands in counts and audit events where the erased names stood.',
  }),
  complete: Type.Boolean({
    description:
      'False: the keys are revoked and nothing shows the person, but not all counts and audit events are rewritten yet. The server goes on; ask again to wait for it.',
  }),
})
export type EraseReply = Static<typeof EraseReply>

/** What a caller waits for the sweep at most. */
export const ERASE_WAIT_MS = 20_000
