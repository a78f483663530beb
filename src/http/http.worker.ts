import { openDeps, type ThreadSetup } from '../deps.ts'
import { systemClock } from '../lib/clock.ts'
import { logUnhandledRejections } from '../log.ts'
import { type Listener, listen } from './listen.ts'

/** One more HTTP thread: the same app on the same port, with caches, router and recorder of its own. */

/** Main thread → HTTP thread. */
export type ToHttp =
  | { kind: 'start'; setup: ThreadSetup; host: string; port: number; publicUrl: string }
  | { kind: 'stop' }
/** HTTP thread → main thread: one `listening` or `failed` after `start`, one `stopped` after `stop`. */
export type FromHttp = { kind: 'listening' } | { kind: 'failed'; reason: string } | { kind: 'stopped' }

declare const self: Worker

logUnhandledRejections()
const send = (message: FromHttp) => self.postMessage(message)

let opened: { listener: Listener; close: () => Promise<void> } | null = null

self.onmessage = async ({ data }: MessageEvent<ToHttp>) => {
  switch (data.kind) {
    case 'start':
      try {
        const { deps, close } = openDeps(data.setup, { clock: systemClock, publicUrl: () => data.publicUrl })
        const { host, port } = data
        opened = { listener: await listen(deps, { host, port, socketPath: null, isShared: true }), close }
        send({ kind: 'listening' })
      } catch (cause) {
        send({ kind: 'failed', reason: cause instanceof Error ? cause.message : String(cause) })
      }
      break
    case 'stop':
      void stop()
      break
    default:
      data satisfies never
  }
}

async function stop(): Promise<void> {
  await opened?.listener.stop()
  await opened?.close()
  send({ kind: 'stopped' })
}
