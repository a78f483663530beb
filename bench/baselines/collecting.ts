/** The server as it is started, but for a signal that has the garbage of all its threads collected: see soak.bench.ts. */
class CollectingWorker extends Worker {
  constructor(url: string | URL, options: WorkerOptions = {}) {
    super(url, { ...options, preload: [new URL('./collecting.worker.ts', import.meta.url).href] })
  }
}
globalThis.Worker = CollectingWorker as typeof Worker // it is one, but for what types say of its prototype
const threads = new BroadcastChannel('collect garbage')
process.on('SIGUSR2', () => {
  threads.postMessage(null)
  Bun.gc(true)
})
await import('../../src/main.ts')
