import { pin } from './load.ts'

/**
 * Keeps both cores of a benchmark from sleeping, with loops that run only where nothing else wants to. A virtual core that
 * sleeps is given to others by the machine below, and comes back milliseconds late: in six turns of a noisy hour a bare
 * `Bun.serve` at 20 000 requests/s had a p99 of 5 to 315 ms without them and of 4 to 9 with. Not for a benchmark whose
 * database may run on either core: the scheduler moves waiting work to a core that sleeps, less readily to a busy one.
 *
 * They end when disposed of, and with this process, however it ends. Where it cannot be done, nothing is.
 */
export function keepCoresAwake(): Disposable {
  const loops = ([0, 1] as const).flatMap((core) => {
    const pinned = pin(core)
    if (pinned.length === 0 || Bun.which('chrt') === null) return []
    const command = ['chrt', '-i', '0', ...pinned, 'sh', '-c', LOOP, 'awake', String(process.pid)]
    return [Bun.spawn(command, { stdout: 'ignore', stderr: 'ignore' })]
  })
  return {
    [Symbol.dispose]: () => {
      for (const loop of loops) loop.kill()
    },
  }
}

const LOOP = 'while kill -0 "$1"; do i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; done'
