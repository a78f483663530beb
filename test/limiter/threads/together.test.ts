import { describe, expect, test } from 'bun:test'
import { directLinks, type Link } from '../../../src/lib/link.ts'
import { systemTimers, type Timers } from '../../../src/lib/timers.ts'
import { WindowTable } from '../../../src/limiter/table/window-table.ts'
import { Decider } from '../../../src/limiter/threads/decider.ts'
import {
  type Answers,
  type Calls,
  KIND,
  MODE,
  NUMBERS_PER_CALL,
} from '../../../src/limiter/threads/protocol.ts'
import { type Charge, type Decision, LimiterRouter } from '../../../src/limiter/threads/router.ts'

const HOUR = 3_600_000
const MIB = 2 ** 20

/** A shard whose messages the test sees, and may hold up. */
class HeldShard {
  table: WindowTable
  /** Every message, and what its records were. */
  readonly messages: string[][] = []
  isHeld = false
  private readonly waiting: Calls[] = []
  private decider: Decider
  private routerEnd: Link<Calls, Answers>

  constructor(
    private readonly count: number,
    private readonly memoryBytes: number,
  ) {
    this.table = new WindowTable({ memoryBytes, nowMs: 0, shards: count })
    this.decider = new Decider(this.table)
    this.routerEnd = this.makeEnd()
  }

  get end(): Link {
    return this.routerEnd as Link // it carries batches and answers only
  }

  /** Answers what it was sent while it was held. */
  release(): void {
    this.isHeld = false
    for (const calls of this.waiting.splice(0)) this.answer(calls)
  }

  die(): void {
    this.routerEnd.onClosed()
  }

  /** Another one in its place, without what this one counted. @returns the router's end. */
  restart(): Link {
    this.table = new WindowTable({ memoryBytes: this.memoryBytes, nowMs: 0, shards: this.count })
    this.decider = new Decider(this.table)
    this.waiting.length = 0
    this.routerEnd = this.makeEnd()
    return this.end
  }

  private makeEnd(): Link<Calls, Answers> {
    return {
      isDirect: false,
      post: (message) => {
        if (!Array.isArray(message)) return
        this.messages.push(recordsOf(message))
        if (this.isHeld) this.waiting.push(message)
        else queueMicrotask(() => this.answer(message))
      },
      onMessage: () => {},
      onClosed: () => {},
      close: () => {},
    }
  }

  private answer(calls: Calls): void {
    this.routerEnd.onMessage(this.decider.decide(calls))
  }
}

function recordsOf(calls: Calls): string[] {
  const records: string[] = []
  for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
    const limit = calls[at + 4] ?? 0
    const kind = Object.entries(KIND).find(([, number]) => number === limit)?.[0] ?? 'call'
    const mode = Object.entries(MODE).find(([, number]) => number === calls[at + 2])?.[0]
    records.push(kind === 'part' ? `part ${mode}` : kind)
  }
  return records
}

/** A router with two shards, and counters whose shard is known. */
function open({ memoryBytes = MIB } = {}) {
  let now = 1_000
  let tick = () => {}
  const timers: Timers = {
    ...systemTimers,
    every: (_, run) => {
      tick = run
      return () => {}
    },
  }
  const shards = [new HeldShard(2, memoryBytes), new HeldShard(2, memoryBytes)] as const
  const [control, main] = directLinks(timers)
  const router = new LimiterRouter({
    ends: { shards: shards.map(({ end }) => end), control },
    hashSecret: 'secret',
    clock: () => now,
    replyTimeoutMs: 1_000,
    timers,
  })
  const charge = (counter: string, options: Partial<Charge> = {}): Charge => ({
    counter,
    limit: 3,
    durationMs: HOUR,
    cost: 1,
    ...options,
  })
  return {
    shards,
    router,
    charge,
    setNow: (ms: number) => {
      now = ms
    },
    /** Three: a call that was sent before is late then. */
    ticks: () => {
      for (let i = 0; i < 3; i++) tick()
    },
    restart: (shard: 0 | 1) => main.post({ shard, end: shards[shard].restart() }),
    together: (...charges: Charge[]) => router.chargeTogether(charges),
    usedOf: async (counter: string, options: Partial<Charge> = {}) => {
      const asked = charge(counter, { limit: 1_000, ...options, cost: 0 })
      return (await router.submit(asked).decided()).used
    },
    /** Names of counters of that shard. */
    async namesOn(shard: 0 | 1, count: number): Promise<string[]> {
      const names: string[] = []
      for (let i = 0; names.length < count; i++) {
        const before = shards[shard].messages.length
        await router.submit(charge(`name ${i}`, { cost: 0 })).answered
        if (shards[shard].messages.length > before) names.push(`name ${i}`)
      }
      for (const each of shards) each.messages.length = 0
      return names
    },
  }
}

const short = (decisions: Decision[]) =>
  decisions.map(({ passed, used }) => `${passed ? 'passed' : 'refused'} ${used}`)
const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

describe('a call that spans shards', () => {
  test('is one message to each shard where it passes', async () => {
    const { shards, together, charge, namesOn } = open()
    const [[a = ''], [b = '', c = '']] = [await namesOn(0, 1), await namesOn(1, 2)]
    expect(short(await together(charge(b), charge(a), charge(c)))).toEqual([
      'passed 1',
      'passed 1',
      'passed 1',
    ])
    await turn()
    expect(shards[0].messages).toEqual([['part undoable', 'call']])
    expect(shards[1].messages).toEqual([['part undoable', 'call', 'call']])
  })

  test('is undone with the next message where another shard refuses, and answers what is really used', async () => {
    const { shards, together, charge, namesOn, usedOf } = open()
    const [[a = ''], [b = '', c = '']] = [await namesOn(0, 1), await namesOn(1, 2)]
    await together(charge(b, { cost: 2 }), charge(a, { cost: 3 }))
    const asked = together(charge(b), charge(a), charge(c, { cost: 2 }), charge(c))
    expect(short(await asked)).toEqual(['passed 2', 'refused 3', 'passed 0', 'passed 0'])
    await turn()
    expect(shards[1].messages.slice(1)).toEqual([
      ['part undoable', 'call', 'call', 'call'],
      ['undo', 'undo', 'undo'],
    ])
    expect([await usedOf(a), await usedOf(b), await usedOf(c)]).toEqual([3, 2, 0])
  })

  test('touches nobody but the counter that refused it last', async () => {
    const { shards, together, charge, namesOn, usedOf } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    await together(charge(a, { cost: 3 }), charge(b))
    await together(charge(a), charge(b))
    await turn()
    for (const shard of shards) shard.messages.length = 0
    for (let i = 0; i < 3; i++)
      expect(short(await together(charge(a), charge(b)))).toEqual(['refused 3', 'passed 1'])
    await turn()
    expect(shards[0].messages).toEqual(Array(3).fill(['part undoable', 'call']))
    expect(shards[1].messages).toEqual(Array(3).fill(['part look', 'call']))
    expect(await usedOf(b)).toBe(1)
  })

  test('asks the others once the counter that refused last has passed', async () => {
    const { shards, together, charge, namesOn, usedOf, setNow } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    await together(charge(a, { cost: 3 }), charge(b))
    await together(charge(a), charge(b))
    await turn()
    setNow(HOUR)
    expect(short(await together(charge(a), charge(b)))).toEqual(['passed 1', 'passed 1'])
    expect(shards[1].messages.slice(-2)).toEqual([
      ['part look', 'call'],
      ['part undoable', 'call'],
    ])
    expect(short(await together(charge(a), charge(b)))).toEqual(['passed 2', 'passed 2'])
    expect(shards[1].messages.at(-1)).toEqual(['part undoable', 'call'])
    expect([await usedOf(a), await usedOf(b)]).toEqual([2, 2])
  })

  test('takes back what the last refuser let pass when another refuses now', async () => {
    const { together, charge, namesOn, usedOf, setNow } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    await together(charge(a, { cost: 3 }), charge(b))
    await together(charge(a), charge(b))
    setNow(HOUR)
    await together(charge(b, { cost: 3 }))
    expect(short(await together(charge(a), charge(b)))).toEqual(['passed 0', 'refused 3'])
    expect([await usedOf(a), await usedOf(b)]).toEqual([0, 3])
  })

  test('takes nothing back from a window that has moved on', async () => {
    const { shards, together, charge, namesOn, usedOf, setNow } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    await together(charge(a, { cost: 3 }), charge(b))
    shards[0].isHeld = true
    const refused = together(charge(a), charge(b, { cost: 2 }))
    await turn()
    await turn()
    setNow(HOUR)
    expect(await usedOf(b)).toBe(0)
    await together(charge(b))
    shards[0].release()
    expect(short(await refused)).toEqual(['refused 3', 'passed 1'])
    await turn()
    expect(shards[1].messages.flat()).toContain('undo')
    expect(await usedOf(b)).toBe(1)
  })
})

describe('a shard that dies or is late', () => {
  test('fails the call, and the others are undone', async () => {
    const { shards, together, charge, namesOn, usedOf } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    shards[0].isHeld = true
    const failed = together(charge(a), charge(b))
    await turn()
    await turn()
    shards[0].die()
    expect(failed).rejects.toThrow('dead')
    await turn()
    await turn()
    expect(await usedOf(b)).toBe(0)
    expect(together(charge(a), charge(b))).rejects.toThrow('dead') // at once: nobody is asked
    expect(await usedOf(b)).toBe(0)
  })

  test('is undone too when it answers after its time', async () => {
    const { shards, together, charge, namesOn, usedOf, ticks } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    shards[0].isHeld = true
    const failed = together(charge(a), charge(b)).catch((cause: Error) => cause.message)
    await turn()
    ticks()
    expect(await failed).toContain('late')
    shards[0].release()
    await turn()
    expect(shards[0].messages.flat()).toContain('undo')
    expect([await usedOf(a), await usedOf(b)]).toEqual([0, 0])
  })

  test('and starts again is not told to undo what it never charged, though that was under way', async () => {
    const { shards, together, charge, namesOn, usedOf, restart } = open()
    const [[a = ''], [b = '']] = [await namesOn(0, 1), await namesOn(1, 1)]
    await together(charge(a, { cost: 3 }), charge(b))
    const refused = together(charge(a), charge(b))
    await turn() // sent, and answered: the undo waits for the end of the next turn
    shards[1].die()
    restart(1)
    await together(charge(b, { cost: 2 }))
    expect(short(await refused)).toEqual(['refused 3', 'passed 1'])
    expect(shards[1].messages.flat()).not.toContain('undo')
    expect(await usedOf(b)).toBe(2)
  })
})

describe('a counter without a cell', () => {
  /** Fills the table of the first shard, so that new counters of the same workspace go into its sketch. */
  async function openFull() {
    const opened = open({ memoryBytes: 16 * 1024 })
    const { router, charge, namesOn } = opened
    const fill = Array.from({ length: 3_000 }, (_, i) =>
      charge(`fill ${i}`, { workspaceId: 'ws', limit: 1_000, durationMs: 24 * HOUR }),
    )
    await router.submitAll(fill)
    const [[a = ''], names] = [await namesOn(1, 1), await namesOn(0, 40)]
    const inSketch: string[] = []
    for (const name of names) {
      const live = opened.shards[0].table.live
      await opened.together(charge(name, { workspaceId: 'ws', limit: 10 }))
      if (opened.shards[0].table.live === live) inSketch.push(name)
    }
    const [b = '', c = ''] = inSketch
    expect(c).not.toBe('')
    await opened.together(charge(a, { workspaceId: 'ws', cost: 3 }))
    for (const { messages } of opened.shards) messages.length = 0
    const of = (counter: string, options: Partial<Charge> = {}) =>
      charge(counter, { workspaceId: 'ws', limit: 10, ...options })
    return { ...opened, of, full: a, b, c }
  }

  test('is held until the outcome is known, and given up when another shard refuses', async () => {
    const { shards, together, of, full, b, usedOf } = await openFull()
    const before = await usedOf(b, { workspaceId: 'ws' })
    const refused = together(of(full, { limit: 3 }), of(b, { cost: 5 }))
    expect(short(await refused)).toEqual(['refused 3', `passed ${before}`])
    await turn()
    expect(shards[0].messages.at(-1)).toEqual(['release'])
    expect(await usedOf(b, { workspaceId: 'ws' })).toBe(before)
  })

  test('counts as used while it is held', async () => {
    const { shards, together, of, full, b, usedOf } = await openFull()
    const before = await usedOf(b, { workspaceId: 'ws' })
    shards[1].isHeld = true
    const refused = together(of(full, { limit: 3 }), of(b, { cost: 9 }))
    await turn()
    await turn()
    expect(await usedOf(b, { workspaceId: 'ws' })).toBe(before + 9)
    expect(short(await together(of(b)))).toEqual(['refused 10'])
    shards[1].release()
    await refused
    expect(short(await together(of(b)))).toEqual([`passed ${before + 1}`])
  })

  test('is counted once all have passed, with a message of its own', async () => {
    const { shards, together, of, full, b, usedOf } = await openFull()
    const before = await usedOf(b, { workspaceId: 'ws' })
    const passed = together(of(full, { limit: 100 }), of(b, { cost: 5 }), of(b, { cost: 2 }))
    expect(short(await passed)).toEqual(['passed 4', `passed ${before + 5}`, `passed ${before + 7}`])
    await turn()
    expect(shards[0].messages.at(-1)).toEqual(['keep'])
    expect(await usedOf(b, { workspaceId: 'ws' })).toBe(before + 7)
  })

  test('is undone in its cell when it gets one in between', async () => {
    const { shards, together, of, full, b, usedOf, setNow } = await openFull()
    const options = { workspaceId: 'ws', durationMs: 48 * HOUR }
    shards[1].isHeld = true
    const refused = together(of(full, { limit: 3 }), of(b, { ...options, cost: 5 }))
    await turn()
    await turn()
    setNow(24 * HOUR) // the windows that fill the table are over
    const live = shards[0].table.live
    await together(of(b, options))
    expect(shards[0].table.live).not.toBe(live)
    expect(await usedOf(b, options)).toBe(6)
    shards[1].release()
    await refused
    await turn()
    expect(await usedOf(b, options)).toBe(1)
  })

  test('of a call that one shard decides is counted at once, or not at all', async () => {
    const { shards, together, of, b, c, usedOf } = await openFull()
    const before = await usedOf(b, { workspaceId: 'ws' })
    expect(short(await together(of(b), of(c, { cost: 11 })))).toEqual([
      `passed ${before}`,
      expect.stringContaining('refused'),
    ])
    expect(await usedOf(b, { workspaceId: 'ws' })).toBe(before)
    await together(of(b), of(c))
    expect(await usedOf(b, { workspaceId: 'ws' })).toBe(before + 1)
    expect(shards[0].messages.flat()).not.toContain('keep')
  })
})
