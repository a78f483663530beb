import type { TestServer } from './server.ts'

/**
 * Counts the statements that the server's main thread sends while `work` runs, in and out of transactions. Compare two
 * counts: the guarantee is that they do not grow with the size of lists.
 */
export const countStatements = async (server: TestServer, work: () => Promise<unknown>): Promise<number> =>
  (await listStatements(server, work)).length

/**
 * The statements themselves, without the server's own: looking for keys to import, and each minute for sweeps. Usage has
 * connections of its own and is not included.
 */
export async function listStatements(
  { onStatement }: TestServer,
  work: () => Promise<unknown>,
): Promise<string[]> {
  const statements: string[] = []
  const stopListening = onStatement((text) => {
    if (!isOwn(text)) statements.push(text)
  })
  try {
    await work()
  } finally {
    stopListening()
  }
  return statements
}

const isOwn = (text: string): boolean =>
  text.includes('from key_imports') ||
  text.includes('select kind from sweeps') ||
  (text.includes('from sweeps') && text.includes('created_at <'))
