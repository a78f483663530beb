import { Type } from '@sinclair/typebox'

export const ResealVaultBody = Type.Object({})
export const ResealVaultReply = Type.Object({
  resealed: Type.Integer({
    minimum: 0,
    description: 'Number of data keys that were resealed with the first vault key.',
  }),
  total: Type.Integer({
    minimum: 0,
    description: 'Number of all data keys: one per workspace that has recoverable keys.',
  }),
})
