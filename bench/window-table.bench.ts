import { cpus } from 'node:os'
import { KeyedHash } from '../src/lib/keyed-hash.ts'
import { CellBatch } from '../src/limiter/table/cell-batch.ts'
import { WindowTable } from '../src/limiter/table/window-table.ts'
import { randomNumbers } from '../test/support/random.ts'

/**
 * The window table alone, one thread, counters arriving as text of 20 characters, hashing included. Claims:
 * 4 million takes/s with a million live windows; 64 bytes of process memory a live window; no pause above 1 ms at
 * p99.9 while windows expire or the table grows; and a flood of 10 million identifiers through 64 MiB keeps memory flat,
 * gives an abuser nothing and wrongly refuses at most 0.1 % of newcomers, whatever their limit.
 *
 * Every answer is compared with a plain count per name; a wrong one ends the benchmark with an error.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const names = isTiny ? 5_000 : 1_000_000
  console.log(`window table: ${cpus()[0]?.model ?? 'unknown processor'}, Bun ${Bun.version}, seed ${SEED}`)
  console.log(`  input: ${names} names of 20 characters, drawn at random, a fresh string for each take`)
  await inOwnProcess('speed', isTiny)
  await inOwnProcess('memory', isTiny)
  await inOwnProcess('pauses', isTiny)
  await inOwnProcess('flood', isTiny)
}

const SEED = 42
const MIB = 2 ** 20
const DURATION_MS = 3_600_000

/** Takes a second with every window live. */
function speed(isTiny: boolean): void {
  for (const group of [64, 1]) speedInGroups(group, isTiny)
}

function speedInGroups(group: number, isTiny: boolean): void {
  const names = new Names(isTiny ? 5_000 : 1_000_000)
  const random = randomNumbers(SEED)
  const batches = isTiny ? 10 : 2_500
  const limit = 12
  const rates: number[] = []
  let passed = 0
  for (let repeat = 0; repeat < (isTiny ? 1 : 3); repeat++) {
    const table = new WindowTable({ memoryBytes: 256 * MIB, nowMs: 0 })
    const hash = new KeyedHash('secret')
    const charged = new Uint8Array(names.count)
    const picked = new Int32Array(2_000)
    const used = new Int32Array(picked.length)
    const hashed = new Int32Array(4 * group)
    // As the limiter does it: hashed one by one, then the calls of one message warmed and decided.
    const takeAll = (texts: string[]): number => {
      const before = Bun.nanoseconds()
      for (let from = 0; from < texts.length; from += group) {
        const until = Math.min(from + group, texts.length)
        for (let i = from, at = 0; i < until; i++, at += 4) {
          hash.update(texts[i] as string) // in range
          hashed[at] = hash.h0
          hashed[at + 1] = hash.h1
          hashed[at + 2] = hash.h2
          hashed[at + 3] = hash.h3
        }
        if (group > 1) {
          for (let i = from, at = 0; i < until; i++, at += 4) {
            table.warm(hashed[at] as number, hashed[at + 2] as number) // in range
          }
        }
        for (let i = from, at = 0; i < until; i++, at += 4) {
          const ok = table.take(
            hashed[at] as number, // in range
            hashed[at + 1] as number, // h1
            hashed[at + 2] as number, // h2
            hashed[at + 3] as number, // h3
            limit,
            DURATION_MS,
            1,
            1_000,
          )
          used[i] = ok ? table.used : -1 - table.used
        }
      }
      return Bun.nanoseconds() - before
    }
    const step = (pick: (i: number) => number): number => {
      for (let i = 0; i < picked.length; i++) picked[i] = pick(i)
      const ns = takeAll(names.texts(picked))
      for (let i = 0; i < picked.length; i++) {
        const name = picked[i] as number // in range
        const before = charged[name] as number // in range
        const wanted = before < limit ? before + 1 : -1 - limit
        if (used[i] !== wanted) throw new Error(`name ${name}: got ${used[i]}, wanted ${wanted}`)
        if (before < limit) charged[name] = before + 1
        if (before < limit) passed++
      }
      return ns
    }
    for (let from = 0; from < names.count; from += picked.length) step((i) => (from + i) % names.count)
    let ns = 0
    for (let batch = 0; batch < batches; batch++) ns += step(() => Math.floor(random() * names.count))
    rates.push((batches * picked.length * 1e3) / ns)
  }
  rates.sort((a, b) => a - b)
  const median = rates[Math.floor(rates.length / 2)] ?? 0
  console.log(
    `  speed, ${group} calls a message: ${median.toFixed(2)} M takes/s, median of ${rates.length} (${rates.map((rate) => rate.toFixed(2)).join(' ')}); ` +
      `${(1e3 / median).toFixed(0)} ns a take; ${passed} charged as the oracle says`,
  )
}

/** Bytes of process memory for a live window, at several counts: where in its growth a table stands matters. */
function memory(isTiny: boolean): void {
  const names = new Names(isTiny ? 5_000 : 1_300_000)
  const hash = new KeyedHash('secret')
  const table = new WindowTable({ memoryBytes: 256 * MIB, nowMs: 0 })
  const line: string[] = []
  const batch = new Int32Array(1_000)
  // The strings and the compiled code are there before the first measure.
  for (let i = 0; i < 300; i++) for (const text of names.texts(batch)) hash.update(text)
  Bun.gc(true)
  const rssBefore = process.memoryUsage().rss
  for (let from = 0; from < names.count; from += batch.length) {
    for (const text of names.texts(batch.map((_, i) => from + i))) {
      hash.update(text)
      const ok = table.take(hash.h0, hash.h1, hash.h2, hash.h3, 1, DURATION_MS, 1, 1_000)
      if (!ok || table.used !== 1) throw new Error(`${text} is not new`)
    }
    const live = from + batch.length
    if (live % (isTiny ? 5_000 : 100_000) !== 0 || (live < 700_000 && !isTiny)) continue
    Bun.gc(true)
    const bytes = (process.memoryUsage().rss - rssBefore) / live
    line.push(`${live / 1e6}M ${bytes.toFixed(1)} (${(table.bytes / live).toFixed(1)})`)
  }
  console.log(`  memory: bytes of resident memory a live window (of these in the table): ${line.join(', ')}`)
}

/** How long single takes and flush slices last while a table grows to a million windows, and while they expire. */
function pauses(isTiny: boolean): void {
  const names = new Names(isTiny ? 5_000 : 1_000_000)
  const random = randomNumbers(SEED)
  const hash = new KeyedHash('secret')
  const changed = new CellBatch(5_000)
  const durations: Record<'growing' | 'expiring', number[]> = { growing: [], expiring: [] }
  const table = new WindowTable({ memoryBytes: 256 * MIB, nowMs: 0 })
  const picked = new Int32Array(10_000)
  const live = new Map<number, number>()
  let nowMs = 0
  let from = 0
  const takes = (list: number[], pick: (i: number) => number) => {
    for (let i = 0; i < picked.length; i++) picked[i] = pick(i)
    const texts = names.texts(picked)
    for (let i = 0; i < texts.length; i++) {
      const before = Bun.nanoseconds()
      hash.update(texts[i] as string) // in range
      table.take(hash.h0, hash.h1, hash.h2, hash.h3, 1e9, 1_000, 1, nowMs)
      list.push(Bun.nanoseconds() - before)
      if (i % 100 === 0) {
        const sliceBefore = Bun.nanoseconds()
        changed.count = 0
        from = Math.max(0, table.collectChanges(from, 128, changed))
        list.push(Bun.nanoseconds() - sliceBefore)
      }
      const name = picked[i] as number // in range
      const used = (live.get(name) ?? 0) + 1
      if (table.used !== used) throw new Error(`name ${name}: got ${table.used}, wanted ${used}`)
      live.set(name, used)
    }
  }
  const warmUp: number[] = []
  for (let i = 0; i < 10; i++) takes(warmUp, () => names.count - 1)
  for (let from = 0; from < names.count; from += picked.length)
    takes(durations.growing, (i) => (from + i) % names.count)
  for (let window = 1; window < (isTiny ? 3 : 6); window++) {
    nowMs = window * 1_000
    live.clear()
    for (let i = 0; i < (isTiny ? 1 : 50); i++)
      takes(durations.expiring, () => Math.floor(random() * names.count))
  }
  for (const [what, list] of Object.entries(durations)) {
    const sorted = Float64Array.from(list).sort()
    const at = (share: number) => ((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) / 1e3).toFixed(1)
    console.log(
      `  pauses while ${what}: p50 ${at(0.5)} µs, p99 ${at(0.99)} µs, p99.9 ${at(0.999)} µs, p99.99 ${at(0.9999)} µs, ` +
        `longest ${at(1)} µs of ${list.length} takes and flush slices`,
    )
  }
}

/**
 * Many identifiers through little memory, while abusers at their limit keep trying and newcomers behave. A newcomer with a
 * limit of n calls n times and counts as refused when any of these was: so every over-count shows, whatever the limit.
 */
async function flood(isTiny: boolean): Promise<void> {
  const floodNames = isTiny ? 20_000 : 10_000_000
  const memoryBytes = isTiny ? 2 ** 18 : 64 * MIB
  const limit = 10
  const hash = new KeyedHash('secret')
  const table = new WindowTable({ memoryBytes, nowMs: 0 })
  const take = (counter: string, most: number, cost: number): boolean => {
    hash.update(counter)
    return table.take(hash.h0, hash.h1, hash.h2, hash.h3, most, DURATION_MS, cost, 1_000)
  }
  const abusers = Array.from({ length: 1_000 }, (_, i) => `abuser-${i}`)
  const abuserPassed = { early: 0, late: 0 }
  const tenths = Array.from({ length: 10 }, () => LIMITS.map(() => ({ newcomers: 0, refused: 0 })))
  const flooders = { calls: 0, refused: 0 }
  const names = new Names(1_000, 'flood')
  const picked = Int32Array.from({ length: names.count }, (_, i) => i)
  let texts = names.texts(picked)
  const resident: number[] = []
  Bun.gc(true)
  const rssBefore = process.memoryUsage().rss
  let ns = 0
  for (let from = 0; from < floodNames; from += names.count) {
    names.number(from)
    texts = names.texts(picked)
    const before = Bun.nanoseconds()
    for (const text of texts) if (!take(text, limit, 1)) flooders.refused++
    ns += Bun.nanoseconds() - before
    flooders.calls += texts.length
    const tenth = tenths[Math.floor((10 * from) / floodNames)] ?? []
    for (let i = from; i < from + names.count; i += 500) {
      // Half of the abusers were there before the memory was full, half come after.
      if (take(abusers[(i / 500) % 500] as string, limit, 1)) abuserPassed.early++ // in range
      if (i > floodNames / 2) {
        const late = abusers[500 + ((i / 500) % 500)] as string // in range
        for (let again = 0; again < 15; again++) if (take(late, limit, 1)) abuserPassed.late++
      }
      for (const [at, most] of LIMITS.entries()) {
        const group = tenth[at]
        if (group === undefined) continue
        let isRefused = false
        for (let call = 0; call < most; call++) if (!take(`newcomer-${most}-${i}`, most, 1)) isRefused = true
        group.newcomers++
        if (isRefused) group.refused++
      }
    }
    if ((from + names.count) % (floodNames / 10) === 0) {
      Bun.gc(true)
      await Bun.sleep(100) // by then what is free has gone back to the system
      resident.push((process.memoryUsage().rss - rssBefore) / MIB)
    }
  }
  // Newcomers of the very end, asked with cost 0 so that these do not add to the flood: is anything counted against them?
  const probes = isTiny ? 10_000 : 1_000_000
  let overCounted = 0
  for (let i = 0; i < probes; i++) {
    take(`probe-${i}`, limit, 0)
    if (table.used > 0) overCounted++
  }
  const allowed = { early: 500 * limit, late: 500 * limit }
  if (abuserPassed.early > allowed.early || abuserPassed.late > allowed.late) {
    throw new Error(
      `abusers passed ${abuserPassed.early} and ${abuserPassed.late} times, at most ${allowed.early} each`,
    )
  }
  const percent = (part: number, whole: number) => ((100 * part) / whole).toFixed(4)
  const refusals = LIMITS.map((most, at) => {
    const all = tenths.flatMap((groups) => groups[at] ?? [])
    const refused = all.reduce((sum, group) => sum + group.refused, 0)
    const newcomers = all.reduce((sum, group) => sum + group.newcomers, 0)
    if (refused > newcomers / 1000)
      throw new Error(`${refused} of ${newcomers} newcomers refused, limit ${most}`)
    return `limit ${most}: ${percent(refused, newcomers)} % of ${newcomers}`
  })
  if (overCounted > probes / 1000)
    throw new Error(`${overCounted} of ${probes} newcomers over-counted at the end`)
  console.log(
    `  flood: ${floodNames} identifiers through ${memoryBytes / MIB} MiB, ${((flooders.calls * 1e3) / ns).toFixed(2)} M takes/s; ` +
      `abusers passed ${abuserPassed.early} (early) and ${abuserPassed.late} (late) of ${allowed.early} each; ` +
      `${table.sketch.chargesTotal} charges in the sketch; resident memory grown, after each tenth: ` +
      `${resident.map((mib) => mib.toFixed(0)).join(' ')} MiB`,
  )
  console.log(
    `  flood, newcomers refused wrongly: ${refusals.join(', ')}; over-counted at the very end: ` +
      `${percent(overCounted, probes)} % of ${probes}; the flood's own: ${percent(flooders.refused, flooders.calls)} %`,
  )
}

/** Of newcomers in a flood. */
const LIMITS = [1, 2, 3, 10]

const parts = { speed, memory, pauses, flood }

/** Each part alone in a process, so that none measures the memory and the compiled code of another. */
async function inOwnProcess(part: keyof typeof parts, isTiny: boolean): Promise<void> {
  const child = Bun.spawn([process.execPath, import.meta.path, part, ...(isTiny ? ['tiny'] : [])], {
    stdout: 'inherit',
    stderr: 'inherit',
  })
  if ((await child.exited) !== 0) throw new Error(`the part ${part} failed`)
}

/** Names of 20 characters, kept as bytes; each use makes a new string, as a request does. */
class Names {
  private readonly bytes: Buffer
  constructor(
    readonly count: number,
    private readonly prefix: string = 'users',
  ) {
    this.bytes = Buffer.alloc(20 * count)
    this.number(0)
  }

  /** Numbers the names anew, from this one on. */
  number(from: number): void {
    for (let i = 0; i < this.count; i++) {
      this.bytes.write(`${this.prefix}${String(from + i).padStart(15, '0')}`, 20 * i, 'latin1')
    }
  }

  texts(picked: Int32Array): string[] {
    return Array.from(picked, (name) => this.bytes.toString('latin1', 20 * name, 20 * name + 20))
  }
}

if (import.meta.main) {
  const part = process.argv[2]
  const isTiny = process.argv.includes('tiny')
  if (part === undefined || part === 'tiny') await run({ tiny: isTiny })
  else if (part in parts)
    await parts[part as keyof typeof parts](isTiny) // just checked
  else throw new Error(`no part ${part}; there are ${Object.keys(parts).join(', ')}`)
}
