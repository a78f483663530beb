import { expect, setDefaultTimeout, test } from 'bun:test'
import { Continuity, deleteOldMarks } from '../../src/records/continuity.ts'
import { openTestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

test('a database that goes back in time, or is made anew with the same rows, is noticed once', async () => {
  await using database = await openTestSql()
  const { sql } = database
  const continuity = new Continuity('process_1')
  const checks = async () => [await continuity.check(sql), await continuity.check(sql)]
  expect(await checks()).toEqual([null, null])

  // An older state: it knows an earlier mark, or is of before this process.
  await sql`update server_marks set mark = mark - 1`
  expect(await checks()).toEqual(['older state', null])
  await sql`delete from server_marks`
  expect(await checks()).toEqual(['older state', null])

  // A dump makes tables anew, with all their rows.
  await sql`alter table settings rename to settings_of_before`
  await sql`create table settings (like settings_of_before including all)`
  await sql`insert into settings select * from settings_of_before`
  expect(await checks()).toEqual(['another copy', null])

  // A dump of before there were marks.
  await sql`drop table server_marks`
  expect(await continuity.check(sql)).toBe('older tables')
})

test('an answer that was lost, a new process and a database that was away are no other database', async () => {
  await using database = await openTestSql()
  const { sql } = database
  const continuity = new Continuity('process_1')
  expect(await continuity.check(sql)).toBeNull()
  await sql`update server_marks set mark = 2` // carried out, and the answer did not arrive
  expect(await continuity.check(sql)).toBeNull()
  expect(await new Continuity('process_2').check(sql)).toBeNull()

  const away = database.anotherPool()
  await away.end()
  expect(continuity.check(away)).rejects.toThrow()
  expect(await continuity.check(sql)).toBeNull()

  await sql`update server_marks set marked_at = marked_at - 86400001 where process_id = 'process_2'`
  await deleteOldMarks(sql)
  expect(await sql`select process_id from server_marks`).toMatchObject([{ process_id: 'process_1' }])
  await continuity.end(sql)
  expect(await sql`select from server_marks`).toHaveLength(0)
})
