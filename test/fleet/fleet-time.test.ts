import { expect, test } from 'bun:test'
import { FleetTime } from '../../src/fleet/fleet-time.ts'

/** A server whose monotonic clock is `at`, and whose own clock is an hour behind Postgres'. */
class Server {
  at = 5_000
  theirOffsetMs = 1_800_000_000_000
  readonly time = new FleetTime(() => this.at, this.theirOffsetMs + 5_000 - 3_600_000)
  /** @param share When Postgres looked at its clock, as a part of the round trip. */
  measure({ roundTripMs = 2, share = 0.5, offByMs = 0 } = {}): number {
    const sentAt = this.at
    const theirMs = sentAt + roundTripMs * share + this.theirOffsetMs + offByMs
    this.at += roundTripMs
    return this.time.measured(sentAt, theirMs, this.at)
  }
  get offMs(): number {
    return this.time.now() - Math.floor(this.at + this.theirOffsetMs)
  }
}

test('a server whose clock is an hour off has the time of Postgres after one measurement', () => {
  const server = new Server()
  expect(server.offMs).toBe(-3_600_000)
  expect(server.time.errorMs).toBe(Number.POSITIVE_INFINITY)
  expect(server.measure()).toBe(3_600_000)
  expect(server.offMs).toBe(0)
  expect(server.time.errorMs).toBe(1)
})

test('the error is half of a round trip at most, and the best of the last measurements counts', () => {
  const server = new Server()
  server.measure({ roundTripMs: 400, share: 0 })
  expect(server.offMs).toBe(-200)
  server.measure({ roundTripMs: 4, share: 0.75 })
  expect(Math.abs(server.offMs)).toBeLessThanOrEqual(1)
  for (let i = 0; i < 8; i++) server.measure({ roundTripMs: 300, share: 1 })
  expect(Math.abs(server.offMs)).toBeLessThanOrEqual(1)
})

test('one answer that is far off moves nothing; three that agree are a step', () => {
  const server = new Server()
  server.measure()
  expect(server.measure({ offByMs: 60_000 })).toBe(0)
  expect(server.measure()).toBe(0)
  expect(server.offMs).toBe(0)
  expect(server.measure({ offByMs: 60_000 })).toBe(0)
  expect(server.measure({ offByMs: -60_000 })).toBe(0)
  expect(server.measure({ offByMs: 60_000 })).toBe(0)
  expect(server.measure({ offByMs: 60_000 })).toBe(0)
  expect(server.offMs).toBe(0)
  expect(server.measure({ offByMs: 60_000 })).toBe(60_000)
  expect(server.offMs).toBe(60_000)
})

test('a slow answer is no step', () => {
  const server = new Server()
  server.measure()
  for (let i = 0; i < 5; i++) expect(server.measure({ roundTripMs: 8_000, share: 0 })).toBe(0)
  expect(Math.abs(server.offMs)).toBeLessThanOrEqual(1)
})

test('it never runs backwards: after a step back it stands still until that time is reached', () => {
  const server = new Server()
  server.measure()
  const before = server.time.now()
  for (let i = 0; i < 3; i++) server.measure({ offByMs: -5_000 })
  expect(server.time.now()).toBe(before)
  server.at += 4_000
  expect(server.time.now()).toBe(before)
  server.at += 2_000
  expect(server.time.now()).toBeGreaterThan(before)
})
