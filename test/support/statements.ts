import type { TestServer } from './server.ts'

/**
 * How many statements the server's main thread sends while `work` runs, in and out of transactions. So only compare one
 * figure with another: the claim is that it does not grow with the lists.
 */
export const countStatements = async (server: TestServer, work: () => Promise<unknown>): Promise<number> =>
  (await listStatements(server, work)).length

/**
 * The statements themselves. What the server does on its own account meanwhile is left out: looking whether keys wait to
 * be imported. Usage goes over connections of its own and is not among them.
 */
export async function listStatements(
  { onStatement }: TestServer,
  work: () => Promise<unknown>,
): Promise<string[]> {
  const statements: string[] = []
  const stopListening = onStatement((text) => {
    if (!text.includes('from key_imports')) statements.push(text)
  })
  try {
    await work()
  } finally {
    stopListening()
  }
  return statements
}
