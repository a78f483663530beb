const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

/**
 * Handles Ctrl-C and similar signals. They often arrive twice, from the terminal and from `bun run`: `heard` must do
 * everything the first time, and nothing harmful the second.
 * @param heard Called with the exit status that shells use for the signal.
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
