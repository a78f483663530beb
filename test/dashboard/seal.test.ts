import { expect, test } from 'bun:test'
import {
  IDLE_MS,
  ROOT_KEYS_MAX,
  SESSION_MS,
  SessionSealer,
  withoutSignIn,
  withSignIn,
} from '../../src/dashboard/seal.ts'
import { hashKey } from '../../src/verify/secret.ts'

const NOW = Date.UTC(2026, 10, 1)
const secret = (text: string) => new Uint8Array(Buffer.alloc(32, text))
const sealer = new SessionSealer([secret('one')])
const signedIn = (index: number, issuedAt = NOW) => ({
  hash: hashKey(`root key ${index}`),
  workspaceId: `ws_${String(index).padStart(16, 'x')}`,
  issuedAt,
})
const session = (count: number) => ({
  seenAt: NOW,
  signedIn: Array.from({ length: count }, (_, i) => signedIn(i)),
})

test('what was sealed is opened again, and two seals of one session differ', () => {
  const sealed = sealer.seal(session(2))
  expect(sealer.open(sealed, NOW)).toEqual(session(2))
  expect(sealer.seal(session(2))).not.toBe(sealed)
  expect(Buffer.from(sealed.slice(2), 'base64url').toString('latin1')).not.toContain('ws_')
})

test('a session changed by one bit, cut, lengthened or of another version is not opened', () => {
  const sealed = sealer.seal(session(1))
  const bytes = Buffer.from(sealed.slice(2), 'base64url')
  for (let at = 0; at < bytes.length; at++) {
    const changed = Buffer.from(bytes)
    changed[at] = (changed[at] ?? 0) ^ 1
    expect(sealer.open(`1.${changed.toString('base64url')}`, NOW)).toBeNull()
  }
  for (const text of [
    '',
    '1.',
    sealed.slice(0, -1),
    `${sealed}AAAA`,
    sealed.slice(2),
    `2.${sealed.slice(2)}`,
  ])
    expect(sealer.open(text, NOW)).toBeNull()
})

test('another spelling of the sealed bytes is not opened', () => {
  // The last digit carries six bits, four or two of them, by the length of the session.
  for (const count of [1, 2, 3]) {
    const sealed = sealer.seal(session(count))
    const bytes = Buffer.from(sealed.slice(2), 'base64url')
    const others = [
      ...DIGITS.split('').map((digit) => sealed.slice(0, -1) + digit),
      `${sealed}=`,
      `${sealed}!`,
    ]
      .concat(sealed.replace('.', '. '), `1.${bytes.toString('base64')}`)
      .filter((text) => text !== sealed)
    for (const text of others) expect([text, sealer.open(text, NOW)]).toEqual([text, null])
  }
})

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** The vault key is rotated by a list: the first seals, all open. */
test('a session lasts through a rotation of the secret, and ends when its secret is gone', () => {
  const sealed = sealer.seal(session(1))
  expect(new SessionSealer([secret('two'), secret('one')]).open(sealed, NOW)).toEqual(session(1))
  expect(new SessionSealer([secret('two')]).open(sealed, NOW)).toBeNull()
  const renewed = new SessionSealer([secret('two'), secret('one')]).seal(session(1))
  expect(new SessionSealer([secret('two')]).open(renewed, NOW)).toEqual(session(1))
})

test('a session ends an hour after it was last used', () => {
  const sealed = sealer.seal(session(1))
  expect(sealer.open(sealed, NOW + IDLE_MS - 1)).not.toBeNull()
  expect(sealer.open(sealed, NOW + IDLE_MS)).toBeNull()
})

test('each sign-in ends after twelve hours, and the session with the last of them', () => {
  const [early, late] = [signedIn(1), signedIn(2, NOW + 1000)]
  const sealed = sealer.seal({ seenAt: NOW + SESSION_MS, signedIn: [early, late] })
  expect(sealer.open(sealed, NOW + SESSION_MS - 1)?.signedIn).toEqual([early, late])
  expect(sealer.open(sealed, NOW + SESSION_MS)?.signedIn).toEqual([late])
  expect(sealer.open(sealed, NOW + SESSION_MS + 1000)).toBeNull()
})

test('a session has one root key of a workspace, and eight at most: then the oldest goes', () => {
  const full = session(ROOT_KEYS_MAX)
  const more = withSignIn(full, signedIn(8), NOW)
  expect(more.signedIn.map(({ workspaceId }) => workspaceId)).toEqual(
    [1, 2, 3, 4, 5, 6, 7, 8].map((index) => signedIn(index).workspaceId),
  )
  const again = withSignIn(full, { ...signedIn(0), hash: hashKey('another') }, NOW)
  expect(again.signedIn).toHaveLength(ROOT_KEYS_MAX)
  expect(again.signedIn.at(-1)?.hash).toBe(hashKey('another'))
  expect(withoutSignIn(full, signedIn(3).workspaceId).signedIn).toHaveLength(ROOT_KEYS_MAX - 1)
  // Browsers keep 4096 bytes of a cookie.
  expect(sealer.seal(full).length).toBeLessThan(3000)
})
