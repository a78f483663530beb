import { type LinkEnd, toLink } from '../../src/lib/link.ts'
import { serveOwner } from '../../src/lib/managed-thread.ts'

/** A thread that does what its test asks for, failures included. */
export type TestRequests = {
  start(reason: string | null): number
  double(input: number): number
  /** Reports `times` times, `everyMs` apart, that it still works, then answers. */
  work(input: { times: number; everyMs: number }): void
  never(input: null): void
  echo(end: LinkEnd): void
  notify(notice: string): void
  end(how: 'throw' | 'exit' | 'die' | 'spin'): void
  stop(input: null): string
}

declare const self: Worker

const owner = serveOwner<TestRequests, string>(self, {
  start(reason) {
    if (reason !== null) throw new Error(reason, { cause: new Error('its cause') })
    return process.pid
  },
  double: (input) => 2 * input,
  async work({ times, everyMs }, working) {
    for (let i = 0; i < times; i++) {
      await Bun.sleep(everyMs)
      working()
    }
  },
  never: () => new Promise<void>(() => {}),
  echo(end) {
    const link = toLink(end)
    link.onMessage = (message) => link.post(message)
  },
  notify(notice) {
    owner.notify(notice)
  },
  end(how) {
    if (how === 'exit') process.exit(0)
    if (how === 'die') owner.die(new Error('it cannot go on'))
    if (how === 'throw')
      setTimeout(() => {
        throw new Error('a bug in this thread')
      })
    while (how === 'spin');
  },
  stop: () => 'stopped in order',
})
