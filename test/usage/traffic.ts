import { expect } from 'bun:test'
import { randomNumbers } from '../support/random.ts'
import type { Answer, Json, TestServer } from '../support/server.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { asText, type Event, expectedRows, OUTCOMES, type Question } from './oracle.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR
const TAGS = ['a', 'b', 'path=/v1/x,y', 'ünï', 'Z"\\']

/** A server, whatever it runs in. */
type Caller = Pick<TestServer, 'get' | 'post'>
/** A key, and what a verification of it must ask for to end as it is meant to. */
type Subject = { key: string; keyId: string; body: Record<string, unknown> }

/** What was asked of a server and what it answered. */
export type Traffic = {
  apiId: string
  /** Holds `api.*.read_api` and `api.*.read_key`. */
  rootKey: string
  events: Event[]
  /** When each of the events was answered: `performance.now()`. */
  answeredAt: number[]
  /** Calls whose outcome nobody knows: the connection broke, or the answer was an error. */
  unknown: { keyId: string; tags: string[] }[]
  /** Verifies at random, some calls at a time, until told otherwise. Each waits `restMs` after its answer. */
  run(server: Caller, isOver: () => boolean, options?: { restMs: number }): Promise<void>
}

/**
 * An API whose keys end in every outcome there is, some with an identity.
 * @param options.now Time as the server has it.
 * @param options.withCredits Also keys that need Postgres for each verification.
 */
export async function makeTraffic(
  server: Caller,
  options: { seed: number; now: () => number; withCredits: boolean },
): Promise<Traffic> {
  const { seed, now, withCredits } = options
  const ask = async (method: string, body: unknown) => success(await server.post(method, body, OPERATOR_KEY))
  const { apiId } = await ask('apis.createApi', { name: 'traffic' })
  const another = await ask('apis.createApi', { name: 'another' })
  const permissions = ['api.*.read_api', 'api.*.read_key']
  const { rootKey } = await ask('rootKeys.createRootKey', { permissions })
  const kinds: { fields: Record<string, unknown>; body?: Record<string, unknown> }[] = [
    { fields: {} },
    { fields: { externalId: 'user_1' } },
    { fields: { externalId: 'user_1' }, body: { apiId } },
    { fields: { externalId: 'user_2', ratelimit: { limit: 20, duration: 365 * DAY } } },
    { fields: { enabled: false } },
    { fields: { expires: now() - 1 } },
    { fields: {}, body: { apiId: another.apiId } },
    { fields: { externalId: 'user_2' }, body: { authorization: { permissions: 'held.by.nobody' } } },
    ...(withCredits ? [{ fields: { externalId: 'user_3', remaining: 15 } }] : []),
  ]
  const subjects: Subject[] = []
  for (const { fields, body = {} } of kinds)
    subjects.push({ ...(await ask('keys.createKey', { apiId, ...fields })), body })
  const random = randomNumbers(seed)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T // never empty

  const traffic: Traffic = {
    apiId,
    rootKey,
    events: [],
    answeredAt: [],
    unknown: [],
    run: async (caller, isOver, { restMs } = { restMs: 0 }) => {
      const work = async () => {
        while (!isOver()) {
          const { key, keyId, body } = pick(subjects)
          const tags = Array.from({ length: Math.floor(random() * 4) }, () => pick(TAGS))
          const atMs = now()
          const answer = await caller.post('keys.verifyKey', { key, ...body, tags }).catch(() => null)
          if (answer?.status !== 200) {
            traffic.unknown.push({ keyId, tags })
            continue
          }
          const { code, identity } = answer.body
          traffic.events.push({ keyId, identityId: identity?.id ?? null, outcome: code, tags, atMs })
          traffic.answeredAt.push(performance.now())
          if (restMs > 0) await Bun.sleep(restMs)
        }
      }
      await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work))
    },
  }
  return traffic
}

export const CALLS_AT_ONCE = 6

/** Every grouping and some filters, and the days of every key: exactly these events. */
export async function expectExactly(
  server: Caller,
  { apiId, rootKey }: Traffic,
  events: readonly Event[],
  nowMs: number,
): Promise<void> {
  const range = { start: nowMs - DAY, end: nowMs }
  const externalIds = await externalIdsOf(server)
  const filters: Question['filter'][] = [
    { tag: 'a' },
    { tag: ['ünï', 'path=/v1/x,y'] },
    { externalId: 'user_1' },
    { keyId: events.slice(0, 3).map(({ keyId }) => keyId) },
  ]
  const groupings = [[], ['hour'], ['day'], ['month']].flatMap((time) =>
    [[], ['key'], ['identity'], ['key', 'identity']].flatMap((others) =>
      [[], ['tags'], ['tag']].map((tags) => [...others, ...time, ...tags]),
    ),
  )
  const questions = [
    ...groupings.map((groupBy) => ({ filter: {}, groupBy })),
    ...filters.flatMap((filter) => SOME_GROUPINGS.map((groupBy) => ({ filter, groupBy }))),
  ]
  for (const { filter, groupBy } of questions) {
    const query = { apiId, ...range, ...filter, ...(groupBy.length > 0 && { groupBy }) }
    const rows: Json[] = success(await server.get('analytics.getVerifications', query, rootKey))
    expect({ filter, groupBy, rows: rows.map(asText).sort() }).toEqual({
      filter,
      groupBy,
      rows: expectedRows(events, { filter, groupBy, range, externalIds }).map(asText).sort(),
    })
  }
  for (const [keyId, ofKey] of Map.groupBy(events, ({ keyId }) => keyId)) {
    const { verifications } = success(
      await server.get('keys.getVerifications', { keyId, start: range.start }, rootKey),
    )
    expect({ keyId, verifications }).toEqual({ keyId, verifications: daysOf(ofKey) })
  }
}

const SOME_GROUPINGS = [[], ['hour', 'key', 'tags'], ['identity', 'day', 'tag']]

/** What keys.getVerifications must answer: an empty list when every count that it shows is zero. */
function daysOf(events: readonly Event[]): Json[] {
  const days = [...Map.groupBy(events, ({ atMs }) => atMs - (atMs % DAY))].map(([time, ofDay]) => {
    const count = (wanted: string) => ofDay.filter(({ outcome }) => outcome === wanted).length
    return {
      time,
      success: count('VALID'),
      rateLimited: count('RATE_LIMITED'),
      usageExceeded: count('USAGE_EXCEEDED'),
    }
  })
  const isCounted = days.some((day) => day.success + day.rateLimited + day.usageExceeded > 0)
  return isCounted ? days.sort((a, b) => a.time - b.time) : []
}

/** What a server has counted, as events: the rows by hour, key and tags, each as often as it was counted. */
export async function countedEvents(
  server: Caller,
  { apiId, rootKey, events }: Traffic,
  nowMs: number,
): Promise<Event[]> {
  const query = { apiId, start: nowMs - DAY, end: nowMs, groupBy: ['hour', 'key', 'tags'] }
  const rows: Json[] = success(await server.get('analytics.getVerifications', query, rootKey))
  const identityIds = new Map(events.map(({ keyId, identityId }) => [keyId, identityId]))
  return rows.flatMap(({ time, keyId, tags, ...counts }) =>
    Object.entries(OUTCOMES).flatMap(([outcome, field]) =>
      Array.from({ length: counts[field] }, () => ({
        keyId,
        tags,
        identityId: identityIds.get(keyId) ?? null,
        outcome: outcome as Event['outcome'], // the keys of OUTCOMES are the outcomes
        atMs: time,
      })),
    ),
  )
}

/** How many events there are of each kind: key, outcome and set of tags. */
export function countByKind(
  events: readonly { keyId: string; outcome?: string; tags: readonly string[] }[],
): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { keyId, outcome, tags } of events) {
    const kind = JSON.stringify([keyId, outcome, [...new Set(tags)].sort()])
    counts.set(kind, (counts.get(kind) ?? 0) + 1)
  }
  return counts
}

async function externalIdsOf(server: Caller): Promise<Map<string, string>> {
  const { identities } = success(await server.get('identities.listIdentities', {}, OPERATOR_KEY))
  return new Map(identities.map(({ id, externalId }: Json) => [id, externalId]))
}

function success({ status, body }: Answer): Json {
  if (status !== 200) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
  return body
}
