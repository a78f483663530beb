const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

/**
 * Hears Ctrl-C and its like. They mostly come twice, from the terminal and from `bun run`, so what is done must be whole
 * after the first and harmless to ask for again.
 * @param heard Given the exit status by which shells know the signal.
 */
export function onInterrupt(heard: (status: number) => void): Disposable {
  const listeners = Object.entries(NUMBERS).map(([name, number]) => ({
    name,
    hear: () => heard(128 + number),
  }))
  for (const { name, hear } of listeners) process.on(name, hear)
  return {
    [Symbol.dispose]() {
      for (const { name, hear } of listeners) process.off(name, hear)
    },
  }
}
