import { expect, test } from 'bun:test'
import { systemTimers } from '../../src/lib/timers.ts'
import type { FromShard, ToShard } from '../../src/limiter/protocol.ts'
import { startShards } from '../../src/limiter/shards.ts'

/** A worker that says what the test has it say. */
class Puppet {
  onmessage: (event: { data: FromShard }) => void = () => {}
  onerror: (event: { message: string }) => void = () => {}
  readonly told: string[] = []
  addEventListener(): void {}
  terminate(): void {}
  postMessage({ kind }: ToShard): void {
    this.told.push(kind)
  }
}

/** Else it gets the calls of HTTP threads before it has its windows, and fails them. */
test('what a shard said before it died does not count as said by the one started in its place', async () => {
  const puppets: Puppet[] = []
  const started = (puppet: Puppet | undefined) =>
    puppet?.onmessage({ data: { kind: 'started', restored: 0 } })
  const options = {
    nodeId: 'node',
    hashSecret: 'secret',
    flushEveryMs: 1_000,
    dataDir: '',
    memoryBytes: 2 ** 20,
  }
  const starting = startShards(
    { ...options, count: 1, address: { kind: 'url', url: '' }, now: 0 },
    {
      timers: systemTimers,
      startWorker: () => {
        const puppet = new Puppet()
        puppets.push(puppet)
        return puppet as unknown as Worker // as far as shards use one
      },
      makeChannel: () => new MessageChannel(),
      openStore: () => ({ write: async () => {}, close: async () => {} }),
      openSpills: () => ({ read: () => [] }),
    },
  )
  await Bun.sleep(0)
  started(puppets[0])
  const shards = await starting
  const ports = shards.connect()
  expect(puppets[0]?.told).toEqual(['start', 'connect'])

  puppets[0]?.onerror({ message: 'died' })
  while (puppets.length < 2) await Bun.sleep(1)
  started(puppets[0])
  await Bun.sleep(1)
  expect(puppets[1]?.told).toEqual(['start'])
  started(puppets[1])
  await Bun.sleep(1)
  expect(puppets[1]?.told).toEqual(['start', 'connect'])

  const stopping = shards.stop()
  puppets[1]?.onmessage({ data: { kind: 'stopped', spilled: 0 } })
  await stopping
  for (const port of ports) port.close()
})
