import { toLink } from '../src/lib/link.ts'
import { WindowTable } from '../src/limiter/table/window-table.ts'
import { Decider } from '../src/limiter/threads/decider.ts'
import type { Answers, Calls } from '../src/limiter/threads/protocol.ts'

/** A shard that stores nothing. It gets its place, how many there are, and its end of the link to the router. */

declare const self: Worker

self.onmessage = ({ data }: { data: { shards: number; port: MessagePort } }) => {
  const decider = new Decider(new WindowTable({ memoryBytes: 2 ** 27, nowMs: 0, shards: data.shards }))
  const router = toLink<Answers, Calls>(data.port)
  router.onMessage = (message) => {
    if (Array.isArray(message)) router.post(decider.decide(message))
  }
}
