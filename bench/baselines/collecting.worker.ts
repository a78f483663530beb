/** Comes before the code of each thread: see collecting.ts. */
const threads = new BroadcastChannel('collect garbage')
threads.onmessage = () => Bun.gc(true)
threads.unref()

export {}
