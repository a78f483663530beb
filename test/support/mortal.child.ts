/**
 * Preloaded into a server's process, so that a test can kill one of its threads. SIGUSR2 ends the youngest thread whose
 * module is named by MORTAL: by an exception (MORTAL_WAY=throw), or silently (MORTAL_WAY=terminate).
 */
export {}

const { MORTAL, MORTAL_WAY } = process.env
const ThreadOf = globalThis.Worker
const workers: Worker[] = []

if (Bun.isMainThread) {
  globalThis.Worker = class extends ThreadOf {
    constructor(url: string | URL, options: WorkerOptions = {}) {
      super(url, { ...options, preload: [import.meta.path] })
      if (String(url).includes(`/${MORTAL}`)) workers.push(this)
    }
  }
  process.on('SIGUSR2', () => {
    const worker = workers.at(-1)
    if (MORTAL_WAY === 'terminate') worker?.terminate()
    else worker?.postMessage({ kind: 'die' })
  })
} else {
  globalThis.addEventListener('message', ({ data }) => {
    if (data?.kind !== 'die') return
    setTimeout(() => {
      throw new Error('a bug in this thread')
    }, 0)
  })
}
