import { Type } from '@sinclair/typebox'

export const ResealVaultBody = Type.Object({})
export const ResealVaultReply = Type.Object({
  resealed: Type.Integer({ minimum: 0, description: 'Data keys that an older vault key had sealed.' }),
  total: Type.Integer({
    minimum: 0,
    description: 'Data keys there are: one a workspace that has recoverable keys.',
  }),
})
