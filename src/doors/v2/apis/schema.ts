import { Type } from '@sinclair/typebox'
import { Closed, Id } from '../schema.ts'

export const ApiId = Id('Id of the API.', { minLength: 8 })

export const CreateApiBody = Closed({
  name: Type.String({ minLength: 3, maxLength: 256, description: 'Display name; need not be unique.' }),
})
export const CreateApiData = Type.Object({
  apiId: Type.String({ description: 'Id of the API for later calls.' }),
})

export const ApiBody = Closed({ apiId: ApiId })
export const GetApiData = Type.Object({
  id: Type.String({ description: 'Id of the API.' }),
  name: Type.String({ description: 'Display name.' }),
})
