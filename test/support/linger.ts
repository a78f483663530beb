import type { AnySql } from '../../src/db/connect.ts'

/** A time limit of requests, for `TOLLGATE_DB_TIMEOUT_MS`, that gives a slow machine time for what does not linger. */
export const LESS_THAN_LINGERING_MS = '2500'

/** Makes the function `linger()`, by which a trigger makes whatever it is on take longer than that on any machine. */
export async function createLinger(sql: AnySql): Promise<void> {
  await sql`
    create function linger() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(3);
      return coalesce(new, old);
    end
    $$`
}
