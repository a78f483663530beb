import { Overrides } from '../src/api/ratelimits/overrides.ts'
import { randomNumbers } from '../test/support/random.ts'
import { machine, median, printTable } from './support/table.ts'

/**
 * Finding the override of an identifier, in process. Claims: with 1 000 patterns at most 10 µs of CPU a decision, whatever their
 * kind; 200 000 exact overrides cost what none cost; changing one of 200 000 takes microseconds.
 *
 * Each answer is compared with the override that was made for the identifier.
 */
export async function run({ tiny = false }: { tiny?: boolean } = {}): Promise<void> {
  const rounds = tiny ? 1 : 7
  const repeats = tiny ? 1 : 50
  const patterns = tiny ? 100 : 1_000
  console.log(`overrides: ${machine()}, ${IDENTIFIERS} identifiers in turn, medians of ${rounds} rounds`)
  const none = new Overrides([], 0)
  const rows: (string | number)[][] = []
  for (const { name, identifierOf, count = patterns } of KINDS) {
    const overrides = new Overrides(
      Array.from({ length: count }, (_, n) => rowOf(identifierOf(n), n)),
      0,
    )
    const took: [number[], number[]] = [[], []]
    for (let round = 0; round <= rounds; round++)
      for (const [i, each] of [none, overrides].entries()) {
        const us = cpuUsOf(() => {
          for (let repeat = 0; repeat < repeats; repeat++)
            for (let n = 0; n < IDENTIFIERS; n++) {
              const limit = each.find(CALLERS[n] as string)?.limit // in range
              const wanted = each === none ? undefined : wantedOf(name, n, count)
              if (wanted !== ANY && limit !== wanted)
                throw new Error(`${name}: got ${limit}, wanted ${wanted}`)
            }
        })
        if (round > 0 || rounds === 1) took[i]?.push(us / repeats / IDENTIFIERS) // the first warms up
      }
    const [without, withThem] = took.map(median)
    rows.push([`${count.toLocaleString('en')} ${name}`, without ?? Number.NaN, withThem ?? Number.NaN])
  }
  printTable(['', 'µs a decision without', 'with'], rows)
  changes(tiny ? 2_000 : 200_000)
}

const IDENTIFIERS = 1_000
const CALLERS = Array.from({ length: IDENTIFIERS }, (_, n) => `org_${n}_user_${n}@example.com`)
/** Random patterns match nobody in most cases; tests compare them with a simple rule. */
const ANY = Symbol('any')

const random = randomNumbers(45)
const word = (lengthMax: number) =>
  Array.from({ length: 1 + Math.floor(random() * lengthMax) }, () =>
    Math.floor(random() * 36).toString(36),
  ).join('')
const KINDS: { name: string; identifierOf: (n: number) => string; count?: number }[] = [
  { name: 'org_N_*', identifierOf: (n) => `org_${n}_*` },
  { name: '*_N@example.com', identifierOf: (n) => `*_${n}@example.com` },
  { name: 'org_N_*@example.com', identifierOf: (n) => `org_${n}_*@example.com` },
  {
    name: 'random texts of 1 to 24, each side of a star',
    identifierOf: (n) => `${word(24)}${n}*${word(24)}`,
  },
  { name: '*.NN.*, as many as a namespace may have', identifierOf: (n) => `*.${n}.*`, count: 50 },
]
const wantedOf = (name: string, n: number, count: number) =>
  name.includes('_N') ? (n < count ? n + 1 : undefined) : ANY

const rowOf = (identifier: string, n: number) => ({
  id: `rlor_${String(n).padStart(7, '0')}`,
  identifier,
  limit: n + 1,
  durationMs: 1_000,
  async: null,
})

/** One override of many changes, as a thread applies it. */
function changes(count: number): void {
  const overrides = new Overrides(
    Array.from({ length: count }, (_, n) => rowOf(`user_${n}`, n)),
    0,
  )
  const CHANGES = 1_000
  const us = cpuUsOf(() => {
    for (let n = 0; n < CHANGES; n++)
      overrides.change({ ...rowOf(`user_${n}`, n + CHANGES), revision: n + 1, isDeleted: false })
  })
  for (let n = 0; n < CHANGES; n++)
    if (overrides.find(`user_${n}`)?.limit !== n + CHANGES + 1) throw new Error(`user_${n} was not changed`)
  if (overrides.find(`user_${count - 1}`)?.limit !== count) throw new Error('another one was changed')
  console.log(`  a change of one of ${count.toLocaleString('en')}: ${(us / CHANGES).toFixed(2)} µs`)
}

/** CPU time, which other programs of a busy machine do not affect. */
function cpuUsOf(work: () => void): number {
  const before = process.cpuUsage().user
  work()
  return process.cpuUsage().user - before
}
