import { type AnySql, type DatabaseAddress, ping } from './connect.ts'

/** A fact made once per database: the first value given stays, and is returned to everyone. */
export async function settingOnce(sql: AnySql, name: string, value: string): Promise<string> {
  await sql`insert into settings (name, value) values (${name}, ${value}) on conflict (name) do nothing`
  const [row] = await sql<{ value: string }[]>`select value from settings where name = ${name}`
  if (row === undefined) throw new Error(`setting ${name} vanished`)
  return row.value
}

/** Made at the first start on a database, and copied with it: what tells it from another one at the same address. */
export const databaseIdOnce = (sql: AnySql): Promise<string> =>
  settingOnce(sql, 'database_id', crypto.randomUUID())

/**
 * Asks the database whether it is the one that the address says, where it says: an empty one would call every key unknown.
 * @throws the driver's error when it does not answer, Error when it is another one.
 */
export async function requireDatabase(sql: AnySql, { databaseId }: DatabaseAddress): Promise<void> {
  if (databaseId === undefined) return await ping(sql)
  const [row] = await sql<{ value: string }[]>`select value from settings where name = 'database_id'`.catch(
    (cause: unknown) => {
      if (cause instanceof Error && 'code' in cause && cause.code === '42P01') return []
      throw cause
    },
  )
  if (row?.value !== databaseId) throw new Error('another database answers at this address than at the start')
}

/** Held until the transaction ends, so that of several starters one makes what all need. */
export async function lockStart(sql: AnySql): Promise<void> {
  await sql`select pg_advisory_xact_lock(8317504811)`
}
