import type { TestServer } from './server.ts'

/** Until the returned function is called, every write of the server is committed and then fails. */
export function failBehindCommits({ server }: Pick<TestServer, 'server'>): () => void {
  const { database } = server.deps
  const { write } = database
  database.write = async (...args: Parameters<typeof write>): Promise<never> => {
    await write.apply(database, args)
    throw new Error('the connection broke behind the commit')
  }
  return () => {
    database.write = write
  }
}
