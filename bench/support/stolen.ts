import { readFileSync } from 'node:fs'

/**
 * Begins to count the time in which cores of this machine wanted to run and its host gave them to others.
 * @returns what share of all their time it was until now, 0 to 1. The kernel counts in hundredths of a second, and not
 *   everywhere: 0 where it does not, not a number where the system tells nothing.
 */
export function stolenSince(): () => number {
  const before = times()
  return () => {
    const now = times()
    return (now.stolen - before.stolen) / (now.all - before.all)
  }
}

function times(): { stolen: number; all: number } {
  try {
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two already.
    const line = /^cpu +(.*)$/m.exec(readFileSync('/proc/stat', 'utf8'))?.[1] ?? ''
    const counts = line.split(' ').slice(0, 8).map(Number)
    return { stolen: counts[7] ?? Number.NaN, all: counts.reduce((sum, count) => sum + count, 0) }
  } catch {
    return { stolen: Number.NaN, all: Number.NaN } // not Linux
  }
}
