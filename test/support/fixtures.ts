import type { Json, TestServer, TestWorkspace } from './server.ts'

/** Creates an API. @returns its id. */
export const makeApi = async (
  workspace: TestWorkspace,
  fields: Record<string, unknown> = {},
): Promise<string> => {
  const { apiId } = await workspace.post('apis.createApi', { name: 'test api' })
  if (Object.keys(fields).length > 0) await workspace.post('apis.updateApi', { apiId, ...fields })
  return apiId
}

/** Creates an API without a keyspace, as those with another kind of authentication are. No endpoint creates one. */
export async function makeApiWithoutKeyspace(server: TestServer, workspace: TestWorkspace): Promise<string> {
  const apiId = await makeApi(workspace)
  await server.server.deps.sql`update apis set keyspace_id = null where id = ${apiId}`
  return apiId
}

export const makeKey = (
  workspace: TestWorkspace,
  apiId: string,
  fields: Record<string, unknown> = {},
): Promise<{ keyId: string; key: string }> => workspace.post('keys.createKey', { apiId, ...fields })

/** Status, error code and message of an answer, for comparisons. */
export const refusalOf = ({ status, body }: { status: number; body: Json }) => ({
  status,
  code: body.error?.code,
  message: body.error?.message,
})
