import type { DatabaseAddress } from '../db/connect.ts'
import { explain } from '../db/explain.ts'
import { inspectDatabase, isFailure } from '../db/inspect.ts'
import { StartError } from '../errors.ts'
import { readDatabaseUrl } from '../lib/database-url.ts'
import { log } from '../log.ts'

/**
 * Inspects the database before a start uses it. Logs warnings.
 * @returns the address to use.
 * @throws StartError: one line with the problem and what to do.
 */
export async function admitDatabase(url: string, options: { connections: number }): Promise<DatabaseAddress> {
  const { address, findings } = await inspectDatabase({ kind: 'url', url }, options)
  const [first, ...others] = findings.filter(isFailure)
  if (first !== undefined) {
    const more = others.length === 0 ? '' : ` (${others.length} more: see tollgate doctor)`
    throw new StartError(`the database cannot be used: ${first.text}${more}`)
  }
  for (const { check, status, text } of findings)
    if (status === 'warn')
      log('warn', 'database_warning', 'the database has a setting that should be changed', { check, text })
  return address
}

/**
 * Runs a start's work on the database.
 * @throws StartError in place of errors of Postgres or the driver.
 */
export async function explained<T>(address: DatabaseAddress, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    // This program's own errors explain themselves. Errors of the driver have a code, errors of files also a path.
    const isTheirs = cause instanceof Error && 'code' in cause && !('path' in cause)
    if (address.kind !== 'url' || !isTheirs) throw cause
    const reason = explain(cause, readDatabaseUrl(address.url))
    throw new StartError(`the database cannot be used: ${reason}`, { cause })
  }
}
