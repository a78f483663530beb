import { serveOwner } from '../../lib/managed-thread.ts'
import { logUnhandledRejections } from '../../log.ts'
import type { ShardRequests } from './protocol.ts'
import { Shard } from './shard.ts'

/** The thread of one shard. */

declare const self: Worker

logUnhandledRejections()

serveOwner<ShardRequests>(self, new Shard())
