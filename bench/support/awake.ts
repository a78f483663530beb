import { closeSync, existsSync, openSync, writeSync } from 'node:fs'

/** Cores that wait in a loop instead of halting, until disposed of. */
export type Awake = Disposable & {
  /** Otherwise they may halt, and `without` changes nothing. */
  isKept: boolean
  /** For the heading of what was measured, after "cores". */
  text: string
  /** Does the work with cores free to halt. */
  without<T>(work: () => Promise<T>): Promise<T>
}

/**
 * Keeps cores from halting, by asking Linux for wake-ups without delay (the file is of its power management; root may write
 * it). A virtual machine gives a halted core back, to whoever waits for one on the host; it comes back late, and cold. What
 * that costs a server at half load is the host's doing, and hides the server's: on two shared cores a bare `Bun.serve` at
 * 30 000 requests a second had p99s of 0.8 to 14 ms, and 0.35 to 2.1 on a core that did not halt. (Machines that serve are told
 * the same by `idle=poll`.) Where that cannot be asked for, nothing is done; nor where Linux has no driver for idle cores, as it
 * then halts them whatever it is asked: a timer was 27 to 32 µs late on one, asked or not.
 * Refused: a program that runs on the server's core whenever that has nothing to do. It keeps the core as well, but each
 * wake-up of the server is then a switch of programs: at 10 000 requests a second 44 µs of CPU each and a p50 of 0.18 ms,
 * this way 27 to 31 and 0.125.
 */
export function keepAwake(): Awake {
  let file = ask()
  if (file === null)
    return { isKept: false, text: 'may halt', without: (work) => work(), [Symbol.dispose]: () => {} }
  const release = () => {
    if (file !== null) closeSync(file)
    file = null
  }
  return {
    isKept: true,
    text: 'wait without halting',
    async without(work) {
      release()
      try {
        return await work()
      } finally {
        file = ask()
      }
    },
    [Symbol.dispose]: release,
  }
}

/** Holds for as long as the file is open. @returns null where it may not be written, or says nothing to anyone. */
function ask(): number | null {
  if (!existsSync(IDLE_DRIVER)) return null
  try {
    const file = openSync('/dev/cpu_dma_latency', 'w')
    writeSync(file, new Uint8Array(4)) // so many microseconds at most: none
    return file
  } catch {
    return null
  }
}

const IDLE_DRIVER = '/sys/devices/system/cpu/cpu0/cpuidle'
