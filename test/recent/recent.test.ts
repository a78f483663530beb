import { describe, expect, test } from 'bun:test'
import type { RecentOutcome } from '../../src/recent/event.ts'
import { LIMITS_SEEN_MAX, LimitsSeen, SeenLimits } from '../../src/recent/limits-seen.ts'
import { NearLimits } from '../../src/recent/near-limit.ts'
import { RECENT_MAX, REFUSALS_MAX, Recent, type RecentQuestions } from '../../src/recent/recent.ts'
import {
  WATCH_EVENTS_MAX,
  WATCH_KEPT_MS,
  WATCH_MS,
  WATCHES_MAX,
  type Watch,
  Watches,
  WORKSPACE_WATCHES_MAX,
} from '../../src/recent/watches.ts'
import { randomNumbers } from '../support/random.ts'

type Query = RecentQuestions['list']['input']

/** A thread's memory with a clock and timers of its own. */
class Memory {
  now = 1_000_000
  readonly timers: { at: number; run: () => void }[] = []
  readonly recent = new Recent({
    thread: '0',
    clock: () => this.now,
    timers: {
      after: (delayMs, run) => {
        const timer = { at: this.now + delayMs, run }
        this.timers.push(timer)
        return () => void this.timers.splice(this.timers.indexOf(timer), 1)
      },
    },
  })
  private requests = 0

  wait(ms: number): void {
    this.now += ms
    for (const timer of this.timers.filter(({ at }) => at <= this.now)) timer.run()
  }

  verify(
    workspaceId: string,
    keyId: string,
    outcome: RecentOutcome,
    identityId: string | null = null,
  ): string {
    const requestId = `req_${++this.requests}`
    this.recent.verified(
      {
        workspaceId,
        id: keyId,
        name: `name of ${keyId}`,
        apiId: 'api_1',
        identity: identityId === null ? null : { id: identityId, externalId: `ext_${identityId}` },
      },
      { cost: 1, tags: ['eu'], caller: { requestId, clientAddress: () => '192.0.2.1' } },
      { outcome, limit: null, remaining: 3 },
      this.now,
    )
    return requestId
  }

  limit(workspaceId: string, identifier: string, options: { passed: boolean; namespaceId?: string }): string {
    const requestId = `req_${++this.requests}`
    const { passed, namespaceId = 'rlns_1' } = options
    this.recent.decided(
      { workspaceId, requestId, location: '192.0.2.2' },
      { id: namespaceId, name: 'email', seen: null },
      { identifier, limit: 10, duration: 60_000 },
      { limit: 10, durationMs: 60_000 },
      { passed, used: passed ? 1 : 10, resetAtMs: 1_060_000, atMs: this.now },
      false,
    )
    return requestId
  }

  list(query: Partial<Omit<Query, 'filter'>> & Partial<Query['filter']> = {}) {
    const { watchId = null, before = null, limit = 1000, top = 0, ...filter } = query
    return this.recent.answer('list', {
      filter: {
        workspaceId: 'ws_1',
        outcomes: 'refused',
        requestId: null,
        keyId: null,
        identity: null,
        namespaceId: null,
        identifier: null,
        ...filter,
      },
      watchId,
      before,
      limit,
      top,
    })
  }
}

const requestsOf = ({ events }: { events: readonly { requestId: string }[] }) =>
  events.map(({ requestId }) => requestId)

describe('what a thread remembers', () => {
  /** The model is a list that is cut from scratch for each question. */
  test('is what a list of all events has, for any mixture of events and questions', () => {
    for (const seed of [1, 2, 3]) {
      const random = randomNumbers(seed)
      const pick = <T>(...from: T[]): T => from[Math.floor(random() * from.length)] as T // in range
      const memory = new Memory()
      const model: {
        requestId: string
        workspaceId: string
        keyId: string | null
        identifier: string | null
        outcome: RecentOutcome
      }[] = []
      for (let i = 0; i < 14_000; i++) {
        memory.now += pick(0, 0, 1)
        const workspaceId = pick('ws_1', 'ws_2')
        if (random() < 0.5) {
          const [keyId, outcome] = [
            pick('key_1', 'key_2'),
            pick<RecentOutcome>('VALID', 'DISABLED', 'EXPIRED'),
          ]
          const requestId = memory.verify(workspaceId, keyId, outcome)
          model.push({ requestId, workspaceId, keyId, identifier: null, outcome })
        } else {
          const [identifier, passed] = [pick('a', 'b', 'c'), random() < 0.5]
          const requestId = memory.limit(workspaceId, identifier, { passed })
          const outcome = passed ? 'PASSED' : 'RATE_LIMITED'
          model.push({ requestId, workspaceId, keyId: null, identifier, outcome })
        }
      }
      const isRefused = ({ outcome }: (typeof model)[number]) => outcome !== 'VALID' && outcome !== 'PASSED'
      const latest = model.slice(-RECENT_MAX)
      const older = model.slice(0, -RECENT_MAX)
      const refusals = model.filter(isRefused).slice(-REFUSALS_MAX)
      const remembered = [...older.filter((event) => refusals.includes(event)), ...latest].reverse()
      for (let i = 0; i < 60; i++) {
        const [workspaceId, limit] = [pick('ws_1', 'ws_2', 'ws_3'), pick(1, 7, 1000, 20_000)]
        const outcomes = pick<Query['filter']['outcomes']>(
          'all',
          'refused',
          ['DISABLED'],
          ['VALID', 'EXPIRED'],
        )
        const keyId = pick(null, null, 'key_1')
        const identifier = pick(null, null, 'b')
        const wanted = (
          outcomes === 'refused' || outcomes[0] === 'DISABLED' ? [...refusals].reverse() : remembered
        )
          .filter((event) => event.workspaceId === workspaceId)
          .filter(
            (event) =>
              outcomes === 'all' ||
              (outcomes === 'refused' ? isRefused(event) : outcomes.includes(event.outcome)),
          )
          .filter(
            (event) =>
              (keyId === null || event.keyId === keyId) &&
              (identifier === null || event.identifier === identifier),
          )
        const answer = memory.list({ workspaceId, outcomes, keyId, identifier, limit })
        expect(requestsOf(answer)).toEqual(wanted.slice(0, limit).map(({ requestId }) => requestId))
      }
      // In pages, none is lost and none comes twice.
      const pages: string[] = []
      for (let before: Query['before'] = null; ; ) {
        const { events } = memory.list({ outcomes: 'all', limit: 300, before })
        pages.push(...requestsOf({ events }))
        before = events.at(-1) ?? null
        if (before === null) break
      }
      expect(pages).toEqual(
        remembered.filter(({ workspaceId }) => workspaceId === 'ws_1').map(({ requestId }) => requestId),
      )
    }
  })

  test('names what happened: a verification after a limit call leaves nothing of it in its place, and the reverse', () => {
    const memory = new Memory()
    for (let i = 0; i < RECENT_MAX; i++) memory.verify('ws_1', 'key_1', 'VALID', 'id_1')
    memory.limit('ws_1', 'a', { passed: true })
    const [limited] = memory.list({ outcomes: ['PASSED'] }).events
    expect(limited).toMatchObject({
      keyId: null,
      keyName: null,
      apiId: null,
      identityId: null,
      externalId: null,
      tags: null,
      credits: -1,
      identifier: 'a',
      limit: 10,
      remaining: 9,
    })
    for (let i = 0; i < RECENT_MAX; i++) memory.verify('ws_1', 'key_2', 'VALID')
    expect(memory.list({ outcomes: 'all', limit: 1 }).events[0]).toMatchObject({
      keyId: 'key_2',
      identityId: null,
      namespaceId: null,
      identifier: null,
      limit: -1,
      credits: 3,
      tags: ['eu'],
    })
  })

  test('has the address of refusals, and since when it is complete', () => {
    const memory = new Memory()
    memory.verify('ws_1', 'key_1', 'VALID')
    memory.verify('ws_1', 'key_1', 'DISABLED')
    const { events, since } = memory.list({ outcomes: 'all' })
    expect(events.map(({ address }) => address)).toEqual(['192.0.2.1', null])
    expect(since).toBe(1_000_000)
    memory.wait(500)
    for (let i = 0; i <= RECENT_MAX; i++) memory.limit('ws_1', 'a', { passed: true })
    expect(memory.list({ outcomes: 'all' }).since).toBe(1_000_500)
    expect(memory.list({ outcomes: 'refused' }).since).toBe(1_000_000)
  })

  test('counts all calls of a workspace, and what was refused most in the last minute', () => {
    const memory = new Memory()
    for (let i = 0; i < 5; i++) memory.limit('ws_1', 'old', { passed: false })
    memory.wait(61_000)
    for (let i = 0; i < 3; i++) memory.limit('ws_1', 'a', { passed: false })
    memory.verify('ws_1', 'key_1', 'DISABLED')
    memory.verify('ws_1', 'key_1', 'VALID')
    for (let i = 0; i < 9; i++) memory.limit('ws_2', 'foreign', { passed: false })
    const { counts, refusedMost } = memory.list({ top: 10 })
    expect(counts).toEqual({ passed: 1, refused: 9 })
    expect(
      refusedMost.map(({ identifier, keyId, outcome, count }) => [identifier ?? keyId, outcome, count]),
    ).toEqual([
      ['a', 'RATE_LIMITED', 3],
      ['key_1', 'DISABLED', 1],
    ])
    // All that it has, whatever is asked for: the sum over all threads decides who is named.
    expect(memory.list({ top: 1 }).refusedMost).toHaveLength(2)
    expect(memory.list({ top: 0 }).refusedMost).toEqual([])
  })
})

describe('a watch', () => {
  const watch = (fields: Partial<Watch> = {}): Watch => ({
    id: 'watch_1',
    workspaceId: 'ws_1',
    watched: { kind: 'key', keyId: 'key_1' },
    namespaceName: null,
    startedAt: 1_000_000,
    endsAt: 1_000_000 + WATCH_MS,
    ...fields,
  })

  test('keeps every event of a key, an identity or an identifier, with its address, and nothing of others', () => {
    const memory = new Memory()
    const { recent } = memory
    recent.answer('watch', watch())
    recent.answer('watch', watch({ id: 'watch_2', watched: { kind: 'identity', identity: 'ext_id_1' } }))
    const watched = { kind: 'identifier', namespaceId: 'rlns_1', identifier: 'a' } as const
    recent.answer('watch', watch({ id: 'watch_3', watched }))
    const key = memory.verify('ws_1', 'key_1', 'VALID')
    const both = memory.verify('ws_1', 'key_1', 'EXPIRED', 'id_1')
    const identity = memory.verify('ws_1', 'key_2', 'VALID', 'id_1')
    const identifier = memory.limit('ws_1', 'a', { passed: true })
    memory.limit('ws_1', 'a', { passed: true, namespaceId: 'rlns_2' })
    memory.verify('ws_2', 'key_1', 'VALID')
    const of = (watchId: string) => memory.list({ outcomes: 'all', watchId })
    expect(requestsOf(of('watch_1'))).toEqual([both, key])
    expect(requestsOf(of('watch_2'))).toEqual([identity, both])
    expect(requestsOf(of('watch_3'))).toEqual([identifier])
    expect(of('watch_1').events.map(({ address }) => address)).toEqual(['192.0.2.1', '192.0.2.1'])
    expect(memory.list({ watchId: 'watch_1' }).events).toHaveLength(1)
    expect(recent.answer('watches', { workspaceId: 'ws_1' }).map(({ kept }) => kept)).toEqual([2, 2, 1])
  })

  test('of another workspace is neither listed, nor read, nor ended', () => {
    const memory = new Memory()
    memory.recent.answer('watch', watch())
    memory.verify('ws_1', 'key_1', 'VALID')
    expect(memory.list({ workspaceId: 'ws_2', watchId: 'watch_1', outcomes: 'all' })).toMatchObject({
      events: [],
      isKnown: false,
    })
    expect(memory.recent.answer('watches', { workspaceId: 'ws_2' })).toEqual([])
    expect(memory.recent.answer('unwatch', { workspaceId: 'ws_2', watchId: 'watch_1' })).toBe(false)
    expect(memory.recent.answer('unwatch', { workspaceId: 'ws_1', watchId: 'watch_1' })).toBe(true)
    expect(memory.list({ watchId: 'watch_1' }).isKnown).toBe(false)
  })

  test('ends after 15 minutes, can be read for 15 more, and is then forgotten', () => {
    const memory = new Memory()
    memory.recent.answer('watch', watch())
    memory.verify('ws_1', 'key_1', 'VALID')
    memory.wait(WATCH_MS)
    memory.verify('ws_1', 'key_1', 'VALID')
    expect(memory.list({ watchId: 'watch_1', outcomes: 'all' }).events).toHaveLength(1)
    memory.wait(WATCH_KEPT_MS)
    expect(memory.list({ watchId: 'watch_1', outcomes: 'all' })).toMatchObject({ events: [], isKnown: false })
    expect(memory.timers).toEqual([])
  })

  test('goes on in a thread that starts later', () => {
    const first = new Memory()
    first.recent.answer('watch', watch())
    const started = new Recent({
      thread: '1.1',
      clock: () => 1_000_500,
      timers: { after: () => () => {} },
      watches: first.recent.watches.all(),
    })
    expect(started.answer('watches', { workspaceId: 'ws_1' })).toMatchObject([{ id: 'watch_1', kept: 0 }])
    started.verified(
      { workspaceId: 'ws_1', id: 'key_1', name: null, apiId: 'api_1', identity: null },
      { cost: 1, tags: null, caller: { requestId: 'req_1', clientAddress: () => null } },
      { outcome: 'VALID', limit: null, remaining: null },
      1_000_500,
    )
    expect(started.answer('watches', { workspaceId: 'ws_1' })).toMatchObject([{ id: 'watch_1', kept: 1 }])
  })

  test('that is full counts what it misses', () => {
    const memory = new Memory()
    memory.recent.answer('watch', watch())
    for (let i = 0; i < WATCH_EVENTS_MAX + 3; i++) memory.verify('ws_1', 'key_1', 'VALID')
    expect(memory.recent.answer('watches', { workspaceId: 'ws_1' })).toMatchObject([
      { kept: WATCH_EVENTS_MAX, missed: 3 },
    ])
  })

  test('is refused when the workspace or the process has too many', () => {
    const watches = new Watches({ after: () => () => {} })
    const start = (id: number, workspaceId: string) =>
      watches.start(watch({ id: `watch_${id}`, workspaceId }), 0)
    for (let i = 0; i < WORKSPACE_WATCHES_MAX; i++) expect(start(i, 'ws_1')).toBe(true)
    expect(start(100, 'ws_1')).toBe(false)
    for (let i = WORKSPACE_WATCHES_MAX; i < WATCHES_MAX; i++) expect(start(i, 'ws_2')).toBe(true)
    expect(start(101, 'ws_3')).toBe(false)
    watches.stop('ws_1', 'watch_0')
    expect(start(102, 'ws_3')).toBe(true)
    watches.close()
    expect(watches.all()).toEqual([])
  })
})

describe('near the limit', () => {
  const note = (
    near: NearLimits,
    identifier: string,
    used: number,
    options: { passed?: boolean; at?: number } = {},
  ) =>
    near.note(
      'ws_1',
      { id: 'rlns_1', name: 'email' },
      identifier,
      { limit: 10, durationMs: 60_000 },
      { passed: options.passed ?? true, used, resetAtMs: 60_000, atMs: options.at ?? 1 },
    )

  test('is who has at most a tenth left, or was refused, while the window is open', () => {
    const near = new NearLimits()
    note(near, 'far', 8)
    note(near, 'near', 9)
    note(near, 'over', 10, { passed: false })
    note(near, 'over', 10, { passed: false })
    const of = (now: number, workspaceId = 'ws_1', namespaceId: string | null = null) =>
      near
        .of(workspaceId, namespaceId, now)
        .map(({ identifier, used, refused }) => [identifier, used, refused])
    expect(of(1).sort()).toEqual([
      ['near', 9, 0],
      ['over', 10, 2],
    ])
    expect([of(60_000), of(1, 'ws_2'), of(1, 'ws_1', 'rlns_2')]).toEqual([[], [], []])
  })

  test('counts refusals of the open window only', () => {
    const near = new NearLimits()
    note(near, 'a', 10, { passed: false })
    near.note(
      'ws_1',
      { id: 'rlns_1', name: 'email' },
      'a',
      { limit: 10, durationMs: 60_000 },
      { passed: true, used: 9, resetAtMs: 120_000, atMs: 70_000 },
    )
    expect(near.of('ws_1', null, 70_000)).toMatchObject([{ used: 9, refused: 0, resetAtMs: 120_000 }])
  })

  test('keeps a bounded number, and of those that collide the ones decided last', () => {
    const near = new NearLimits()
    for (let i = 0; i < 20_000; i++) note(near, `user_${i}`, 10, { at: i })
    const kept = near.of('ws_1', null, 1)
    expect(kept.length).toBeLessThanOrEqual(1024)
    expect(kept.length).toBeGreaterThan(900)
    expect(kept.some(({ identifier }) => identifier === 'user_19999')).toBe(true)
    expect(Math.min(...kept.map(({ at }) => at))).toBeGreaterThan(5_000)
  })
})

describe('the limits that a namespace was asked for', () => {
  test('are the last ones; v2 calls with any limit are one', () => {
    const seen = new SeenLimits()
    for (let limit = 1; limit <= LIMITS_SEEN_MAX + 1; limit++) seen.note(limit, 60_000, false, limit)
    seen.note(5, 60_000, false, 100)
    const limits = seen.list().map(({ limit }) => limit)
    expect(limits).toHaveLength(LIMITS_SEEN_MAX)
    expect(limits).not.toContain(1)
    seen.note(7, 1000, true, 101)
    seen.note(8, 1000, true, 102)
    expect(seen.list().filter(({ isShared }) => isShared)).toEqual([
      { limit: 8, durationMs: 1000, isShared: true, at: 102 },
    ])
  })

  test('are kept for a bounded number of namespaces; one that was given up says so', () => {
    const all = new LimitsSeen(2)
    const first = all.of('rlns_1')
    first.note(1, 1000, false, 1)
    all.of('rlns_2')
    all.of('rlns_3')
    expect([first.isKept, all.list('rlns_1'), all.of('rlns_2').isKept]).toEqual([false, [], true])
  })
})
