import { connect, type DatabaseAddress } from '../../src/db/connect.ts'

/** A process to kill: adds hours and days to their sums in small slices, and prints a character for each slice. */
const [address, before] = process.argv.slice(2)
const sql = connect(JSON.parse(address ?? '') as DatabaseAddress, { connectionsMax: 1 }) // written by the test
for (let goesOn = true; goesOn; ) {
  const [row] = await sql<{ days: boolean; months: boolean }[]>`
    select make_usage_days(${Number(before)}, 2) as days, make_usage_months(2) as months`
  goesOn = row?.days === true || row?.months === true
  process.stdout.write('.')
}
await sql.end()
