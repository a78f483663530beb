import { type Static, Type } from '@sinclair/typebox'

export const CreateApiBody = Type.Object({
  name: Type.String({ minLength: 3, maxLength: 256, description: 'For people; need not be unique.' }),
})
export type CreateApiBody = Static<typeof CreateApiBody>

export const CreateApiReply = Type.Object({
  apiId: Type.String({ description: 'Names the API in every other call.' }),
  name: Type.String(),
})
export type CreateApiReply = Static<typeof CreateApiReply>
