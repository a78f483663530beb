import { Type } from '@sinclair/typebox'

/** Reply of keys.eraseKey and identities.eraseIdentity. */
export const EraseReply = Type.Object({
  pseudonym: Type.String({
    description: 'Random text that replaces the erased names in usage and audit events.',
  }),
  complete: Type.Boolean({
    description:
      'False: the keys are revoked and the API no longer shows the person, but some usage and audit events are not rewritten yet. The server continues; repeat the call to wait for it.',
  }),
})
