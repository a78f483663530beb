import { hashKey } from '../../src/verify/secret.ts'
import { makeApi } from './fixtures.ts'
import type { TestServer, TestWorkspace } from './server.ts'

/** Enqueues keys whose role does not exist, and gives them up, as the importer does after ten retries. @returns the ids of the imports. */
export async function giveUpImports(
  server: TestServer,
  workspace: TestWorkspace,
  texts: readonly string[],
): Promise<string[]> {
  const apiId = await makeApi(workspace)
  const keys = texts.map((text) => ({
    hash: { value: hashKey(text), variant: 'sha256_base64' },
    roles: ['editor'],
    name: text,
    start: text.slice(0, 4),
  }))
  await workspace.post('migrations.enqueueKeys', { migrationId: 'old system', apiId, keys })
  const { sql } = server.server.deps
  for (;;) {
    const rows = await sql<{ id: string }[]>`
      update key_imports set failed_at = ${Date.now()}, attempts = 11
       where workspace_id = ${workspace.workspaceId} and attempts > 0 returning id::text`
    if (rows.length === texts.length) return rows.map(({ id }) => id).sort((a, b) => Number(a) - Number(b))
    await sql`update key_imports set failed_at = null where workspace_id = ${workspace.workspaceId}`
    await Bun.sleep(10)
  }
}
