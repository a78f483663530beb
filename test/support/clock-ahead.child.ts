/** Preloaded into a server's process: the clock of all its threads is CLOCK_AHEAD_MS ahead. */
export {}

const aheadMs = Number(process.env.CLOCK_AHEAD_MS)
const DateOf = globalThis.Date
const now = () => DateOf.now() + aheadMs

globalThis.Date = new Proxy(DateOf, {
  construct: (target, args, type) => Reflect.construct(target, args.length === 0 ? [now()] : args, type),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name, target)),
})

if (Bun.isMainThread) {
  const ThreadOf = globalThis.Worker
  globalThis.Worker = class extends ThreadOf {
    constructor(url: string | URL, options: WorkerOptions = {}) {
      super(url, { ...options, preload: [import.meta.path] })
    }
  }
}
