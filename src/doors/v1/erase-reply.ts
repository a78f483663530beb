import { Type } from '@sinclair/typebox'

/** Reply of keys.eraseKey and identities.eraseIdentity. */
export const EraseReply = Type.Object({
  pseudonym: Type.String({
    description: 'Random; stands in counts and audit events where the erased names stood.',
  }),
  complete: Type.Boolean({
    description:
      'False: the keys are revoked and nothing shows the person, but not all counts and audit events are rewritten yet. The server goes on; ask again to wait for it.',
  }),
})
