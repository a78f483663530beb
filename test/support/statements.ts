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

/**
 * The statements the server's main thread sends while `work` runs, in or out of transactions. What the server does on its
 * own account meanwhile is left out: sending usage, looking whether keys wait to be imported.
 */
export async function listStatements(
  { server }: TestServer,
  work: () => Promise<unknown>,
): Promise<string[]> {
  const { options } = server.deps.sql
  const statements: string[] = []
  options.debug = (_, text) => {
    if (!/apply_usage_batch|make_usage_month|usage_writers|from key_imports/.test(text)) statements.push(text)
  }
  try {
    await work()
  } finally {
    options.debug = false
  }
  return statements
}
