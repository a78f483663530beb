import { expect, test } from 'bun:test'
import { directLinks } from '../../../src/lib/link.ts'
import type { FromThread, ToThread } from '../../../src/lib/managed-thread.ts'
import { systemTimers, type Timers } from '../../../src/lib/timers.ts'
import type { ShardLink, ShardRequests } from '../../../src/limiter/threads/protocol.ts'
import { type ShardPlatform, startShards } from '../../../src/limiter/threads/shards.ts'

/** A thread that says what the test has it say. */
class Puppet implements ShardLink {
  readonly isDirect = false
  readonly asked: ToThread<ShardRequests>[] = []
  onMessage(_message: FromThread<ShardRequests>): void {}
  onClosed(_cause?: Error): void {}
  close(): void {
    queueMicrotask(() => this.onClosed())
  }
  post(request: ToThread<ShardRequests>): void {
    this.asked.push(request)
  }

  get told(): string[] {
    return this.asked.map(({ kind }) => kind)
  }
  /** Answers the latest request of that kind. */
  answer(kind: 'start' | 'stop', answer: number): void {
    this.onMessage({ kind: 'answer', id: this.idOf(kind), answer })
  }
  work(): void {
    this.onMessage({ kind: 'working', id: this.idOf('start') })
  }
  private idOf(kind: string): number {
    return this.asked.findLast((each) => each.kind === kind)?.id ?? 0
  }
}

const OPTIONS = {
  count: 1,
  address: { kind: 'url' as const, url: '' },
  nodeId: 'node',
  hashSecret: 'secret',
  flushEveryMs: 1_000,
  dataDir: '',
  memoryBytes: 2 ** 20,
  now: 0,
}

/** Puts each puppet that is started at the end of the list. */
const platformOf = (puppets: Puppet[], timers: Timers = systemTimers): ShardPlatform => ({
  timers,
  startThread: () => {
    const puppet = new Puppet()
    puppets.push(puppet)
    return puppet
  },
  makeLink: () => directLinks(timers),
  openStore: () => ({
    segmentsMax: 16,
    writeSegments: async () => {},
    list: async () => [],
    close: async () => {},
  }),
  openSpills: () => ({ read: () => [] }),
})

/** Else it gets the calls of HTTP threads before it has its windows, and fails them. */
test('what a shard said before it died does not count as said by the one started in its place', async () => {
  const puppets: Puppet[] = []
  const started = (puppet: Puppet | undefined) => puppet?.answer('start', 0)
  const starting = startShards(OPTIONS, platformOf(puppets))
  await Bun.sleep(0)
  started(puppets[0])
  const shards = await starting
  shards.connect()
  expect(puppets[0]?.told).toEqual(['start', 'connect'])

  puppets[0]?.onClosed(new Error('died'))
  while (puppets.length < 2) await Bun.sleep(1)
  started(puppets[0])
  await Bun.sleep(1)
  expect(puppets[1]?.told).toEqual(['start'])
  started(puppets[1])
  await Bun.sleep(1)
  expect(puppets[1]?.told).toEqual(['start', 'connect'])

  const stopping = shards.stop()
  puppets[1]?.answer('stop', 0)
  await stopping
})

/** A server with more windows than it can read in that time would not start, nor ever again. */
test('a shard may take as long as it wants to restore its windows, while it says how far it is', async () => {
  const puppets: Puppet[] = []
  let now = 0
  let due: { atMs: number; run: () => void }[] = []
  const timers: Timers = {
    ...systemTimers,
    now: () => now,
    after: (ms, run) => {
      const timer = { atMs: now + ms, run }
      due.push(timer)
      return () => {
        due = due.filter((each) => each !== timer)
      }
    },
  }
  const advance = (ms: number) => {
    now += ms
    for (const { run } of due.filter(({ atMs }) => atMs <= now)) run()
  }
  const starting = startShards(OPTIONS, platformOf(puppets, timers))
  const outcome = starting.then(
    () => 'started',
    (cause: Error) => cause.message,
  )
  await Bun.sleep(0)
  for (let part = 1; part <= 10; part++) {
    advance(80_000)
    puppets[0]?.work()
  }
  puppets[0]?.answer('start', 200_000)
  expect(await outcome).toBe('started')
  expect(due).toEqual([]) // nothing is waited for any more
  const stopping = (await starting).stop()
  puppets[0]?.answer('stop', 0)
  await stopping

  const silent = startShards(OPTIONS, platformOf(puppets, timers)).catch((cause: Error) => cause.message)
  await Bun.sleep(0)
  advance(80_000)
  puppets[1]?.work()
  advance(90_000)
  expect(await silent).toBe("shard 0 does not start: no answer to 'start' within 90000 ms")
})
