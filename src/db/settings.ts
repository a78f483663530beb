import type { AnySql } from './connect.ts'

/** A fact made once per database: the first value given stays, and is returned to everyone. */
export async function settingOnce(sql: AnySql, name: string, value: string): Promise<string> {
  await sql`insert into settings (name, value) values (${name}, ${value}) on conflict (name) do nothing`
  const [row] = await sql<{ value: string }[]>`select value from settings where name = ${name}`
  if (row === undefined) throw new Error(`setting ${name} vanished`)
  return row.value
}

/** Held until the transaction ends, so that of several starters one makes what all need. */
export async function lockStart(sql: AnySql): Promise<void> {
  await sql`select pg_advisory_xact_lock(8317504811)`
}
