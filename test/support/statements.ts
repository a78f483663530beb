import type { TestServer } from './server.ts'

/**
 * How many statements the transactions of `work` make on the server's main thread. Pieces of SQL nested in a statement
 * count too, so only compare one figure with another: the claim is that it does not grow with the lists.
 */
export async function countStatements({ server }: TestServer, work: () => Promise<unknown>): Promise<number> {
  const { sql } = server.deps
  const { begin } = sql
  let statements = 0
  // The verb under test is the only one to open transactions meanwhile: tests of a file run one after the other.
  sql.begin = ((run: (tx: object) => unknown) =>
    begin((tx) => {
      const counting = new Proxy(tx, {
        apply: (target, self, parts) => {
          statements++
          return Reflect.apply(target, self, parts)
        },
      })
      return run(counting)
    })) as typeof begin // of its two forms the server uses this one
  try {
    await work()
  } finally {
    sql.begin = begin
  }
  return statements
}
