import { expect, test } from 'bun:test'
import { directLinks, type Link, toLink } from '../../src/lib/link.ts'
import { systemTimers } from '../../src/lib/timers.ts'

const portLinks = (): [Link, Link] => {
  const { port1, port2 } = new MessageChannel()
  return [toLink(port1), toLink(port2)]
}

test.each([
  ['ports', portLinks],
  ['direct', () => directLinks(systemTimers)],
] as const)(
  'messages arrive in order, and both ends hear once that one is closed (%s)',
  async (_, makeLinks) => {
    const [one, other]: [Link, Link] = makeLinks()
    const heard: unknown[] = []
    const closed: string[] = []
    const isClosed = Promise.withResolvers<void>()
    other.onMessage = (message) => {
      heard.push(message)
      if (message === 2) other.close()
    }
    const hearClosed = (end: string) => () => {
      closed.push(end)
      if (closed.length === 2) isClosed.resolve()
    }
    one.onClosed = hearClosed('one')
    other.onClosed = hearClosed('other')
    one.post(1)
    expect(heard).toEqual(one.isDirect ? [1] : [])
    one.post(2)
    expect(closed).toEqual([])
    await isClosed.promise
    one.post(3)
    one.close()
    await Bun.sleep(10)
    expect(heard).toEqual([1, 2])
    expect(closed.sort()).toEqual(['one', 'other'])
  },
)
