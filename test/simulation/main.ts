import { simulate } from './simulation.ts'

const o = simulate(Number(process.argv[2] ?? 1), { isTraced: process.argv[3] === 't' })
for (const line of o.trace.slice(-60)) console.log(line)
console.log({ ...o, trace: null })
