import { openSpills } from '../../src/data-dir/spill.ts'
import { connect, type DatabaseAddress } from '../../src/db/connect.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'
import { AT, ratelimit, verification } from './support.ts'

/** A process to kill: records as fast as it can, and prints how much was recorded before each flush that is done. */
const [address, name] = process.argv.slice(2)
const sql = connect(JSON.parse(address ?? '') as DatabaseAddress, { connectionsMax: 1 }) // written by the test
const recorder = new UsageRecorder({
  sql,
  writerId: `child ${name} ${process.pid}`,
  spills: openSpills('/nonexistent'),
  flushEveryMs: 60_000,
  clock: () => AT,
})
for (let recorded = 0; ; ) {
  for (let i = 0; i < 500; i++, recorded++) {
    recorder.recordVerification(verification({ keyId: `${name}_${i}`, tags: [`tag ${i % 7}`] }))
    recorder.recordRatelimit(ratelimit({ namespaceId: `${name}`, identifier: `user ${i % 50}` }))
  }
  await recorder.flush()
  process.stdout.write(`${recorded}\n`)
}
