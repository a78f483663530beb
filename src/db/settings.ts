import { type AnySql, type DatabaseAddress, ping } from './connect.ts'

/** Stores a value once for each database: the first value stays and is returned to every caller. */
export async function settingOnce(sql: AnySql, name: string, value: string): Promise<string> {
  await sql`insert into settings (name, value) values (${name}, ${value}) on conflict (name) do nothing`
  const [row] = await sql<{ value: string }[]>`select value from settings where name = ${name}`
  if (row === undefined) throw new Error(`setting ${name} vanished`)
  return row.value
}

/**
 * Id of the database. Created by the first start, copied with the database, and used to recognise another database at the
 * same address.
 */
export const databaseIdOnce = (sql: AnySql): Promise<string> =>
  settingOnce(sql, 'database_id', crypto.randomUUID())

/** The id that a start has stored; undefined = none has. */
export async function foundDatabaseId(sql: AnySql): Promise<string | undefined> {
  const [table] = await sql<{ isThere: boolean }[]>`select to_regclass('settings') is not null as "isThere"`
  if (table?.isThere !== true) return undefined
  const [row] = await sql<{ value: string }[]>`select value from settings where name = 'database_id'`
  return row?.value
}

/**
 * Checks that the database has the id in the address, if there is one: in an empty database every key would be unknown.
 * @throws the driver's error when it does not answer, Error when it is another database.
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

/** A lock until the transaction ends: of several starting servers, one creates what all need. */
export async function lockStart(sql: AnySql): Promise<void> {
  await sql`select pg_advisory_xact_lock(8317504811)`
}
