import type { AnySql } from '../../src/db/connect.ts'

/**
 * Value of `TOLLGATE_DB_TIMEOUT_MS` that is long enough for normal statements on a slow machine, and too short for
 * `linger()`.
 */
export const LESS_THAN_LINGERING_MS = '2500'

/** Creates the function `linger()`. As a trigger it makes a statement take longer than that limit on any machine. */
export async function createLinger(sql: AnySql): Promise<void> {
  await sql`
    create function linger() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(3);
      return coalesce(new, old);
    end
    $$`
}
