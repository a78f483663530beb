import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { openTestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { ATTACKS, type Attack } from './attacker.child.ts'

/** Latencies of an honest client during an attack. */
export type NeighbourReport = {
  attack: Attack | 'nobody'
  answered: number
  /** Milliseconds. */
  p50: number
  worst: number
  /** Resident memory of the server's process afterwards, MiB. */
  residentMib: number
}

/**
 * Attacks the server and meanwhile calls it, one call after the other, each on a new connection.
 * @param options.calls Number of calls.
 * @throws Error when a call is not answered with a 200 within `patienceMs`.
 */
export async function besideAttack(
  { url, pid }: { url: string; pid: number },
  attack: Attack | 'nobody',
  { calls, patienceMs }: { calls: number; patienceMs: number },
): Promise<NeighbourReport> {
  const { hostname, port } = new URL(url)
  const attacker =
    attack === 'nobody'
      ? null
      : Bun.spawn([process.execPath, join(import.meta.dir, 'attacker.child.ts'), attack, hostname, port], {
          stdout: 'pipe',
          stderr: 'inherit',
        })
  try {
    await attacker?.stdout.getReader().read()
    const tookMs: number[] = []
    for (let i = 0; i < calls; i++) {
      const startedAt = performance.now()
      const response = await fetch(`${url}/v1/liveness`, {
        headers: { connection: 'close' },
        signal: AbortSignal.timeout(patienceMs),
      }).catch((cause: unknown) => {
        throw new Error(`call ${i} beside a client that ${attack} is not answered within ${patienceMs} ms`, {
          cause,
        })
      })
      await response.arrayBuffer()
      if (response.status !== 200) throw new Error(`beside a client that ${attack}: ${response.status}`)
      tookMs.push(performance.now() - startedAt)
    }
    tookMs.sort((a, b) => a - b)
    return {
      attack,
      answered: tookMs.length,
      p50: tookMs[Math.floor(tookMs.length / 2)] ?? Number.NaN,
      worst: tookMs.at(-1) ?? Number.NaN,
      residentMib: residentMib(pid),
    }
  } finally {
    attacker?.kill('SIGKILL')
    await attacker?.exited
  }
}

/** Linux only; NaN elsewhere. */
export function residentMib(pid: number): number {
  try {
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024)
  } catch {
    return Number.NaN
  }
}

export const ALL_ATTACKS = Object.keys(ATTACKS) as Attack[] // the names of the object

/**
 * `bun run hostile neighbours --calls 200`: latencies of an honest client beside each attack, each on a server of its own.
 */
export async function runNeighbours(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { calls: { type: 'string', default: '200' } } })
  const rows: NeighbourReport[] = []
  for (const attack of ['nobody', ...ALL_ATTACKS] as const) {
    await using database = await openTestDatabase()
    await using server = await spawnServer({
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
    })
    const place = { url: server.url, pid: server.process.pid }
    rows.push(await besideAttack(place, attack, { calls: Number(values.calls), patienceMs: 60_000 }))
  }
  console.table(rows)
}
