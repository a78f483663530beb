import { openSpills } from '../../data-dir/spill.ts'
import { systemTimers } from '../../lib/timers.ts'
import { logUnhandledRejections } from '../../log.ts'
import { WindowStore } from '../flush/store.ts'
import type { ToShard } from './protocol.ts'
import { Shard } from './shard.ts'

/** The thread of one shard. */

declare const self: Worker

logUnhandledRejections()

const shard = new Shard({
  say: (message) => self.postMessage(message),
  timers: systemTimers,
  openStore: (address) => new WindowStore(address),
  openSpills,
  collectGarbage: () => Bun.gc(false),
})
self.onmessage = ({ data }: MessageEvent<ToShard>) => shard.receive(data)
