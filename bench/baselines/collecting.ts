/** The server as it is started, but for a signal that has the garbage of its main thread collected: see soak.bench.ts. */
process.on('SIGUSR2', () => Bun.gc(true))
await import('../../src/main.ts')
