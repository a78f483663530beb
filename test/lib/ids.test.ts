import { expect, test } from 'bun:test'
import { decodeBase58, encodeBase58 } from '../../src/lib/base58.ts'
import { firstIdAt, newId, newRequestId } from '../../src/lib/ids.ts'

/** Pages are ordered by id: an id that sorts before an older one would be skipped. */
test('ids made ten seconds apart sort by their time', () => {
  const start = Date.parse('2026-01-01T00:00:00Z')
  const ids = Array.from({ length: 10_000 }, (_, i) => newId('key', start + i * 10_000))
  expect(ids).toEqual(ids.toSorted((a, b) => (a < b ? -1 : 1)))
})

test('ids have their prefix, sixteen base58 characters, and are never equal', () => {
  const made = [() => newId('req'), newRequestId].map((make) => Array.from({ length: 20_000 }, make))
  const ids = made.flat()
  expect(new Set(ids).size).toBe(40_000)
  for (const id of ids) expect(id).toMatch(/^req_[1-9A-HJ-NP-Za-km-z]{16}$/)
})

/** Tools that know the format read the time: 4 bytes of seconds since 1 700 000 000, then 8 random bytes. */
test('an id is twelve bytes in base58, and the first four are the second of its creation', () => {
  for (const at of ['2026-01-01T00:00:00.999Z', '2026-11-21T12:34:56.000Z', '2040-02-29T23:59:59.500Z']) {
    for (let i = 0; i < 2000; i++) {
      const bytes = decodeBase58(newId('ws', Date.parse(at)).slice(3))
      expect(bytes).toHaveLength(12)
      const seconds = new DataView(bytes?.buffer ?? new ArrayBuffer(12)).getUint32(0)
      expect(seconds + 1_700_000_000).toBe(Math.floor(Date.parse(at) / 1000))
    }
  }
})

/** The model: long division with big integers. */
test('base58 agrees with long division, keeps leading zeros, and decodes to the same bytes', () => {
  const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'
  const model = (bytes: Uint8Array) => {
    let text = ''
    for (let value = bytes.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n); value > 0n; value /= 58n)
      text = alphabet.charAt(Number(value % 58n)) + text
    const zeros = bytes.findIndex((byte) => byte !== 0)
    return '1'.repeat(zeros < 0 ? bytes.length : zeros) + text
  }
  for (let length = 0; length < 64; length++) {
    const bytes = crypto.getRandomValues(new Uint8Array(length))
    if (length % 3 === 0) bytes.fill(0, 0, Math.min(length, 2))
    const text = encodeBase58(bytes)
    expect(text).toBe(model(bytes))
    expect(decodeBase58(text)).toEqual(bytes)
  }
  expect(decodeBase58('0OIl')).toBeNull()
})

/** A list that begins at a time skips earlier ids without reading them. */
test('no id created at or after a time sorts before the first id of that time', () => {
  for (let atMs = Date.UTC(2024, 5, 1); atMs < Date.UTC(2050, 0, 1); atMs += 400 * 86_400_000 + 12_345) {
    const first = firstIdAt('log', atMs)
    expect(newId('log', atMs) >= first).toBe(true)
    expect(newId('log', atMs - 1000) < first).toBe(true)
  }
  expect(firstIdAt('log', 0)).toBe('')
  expect(newId('log', Date.UTC(2026, 0, 1)) > firstIdAt('log', Date.UTC(2023, 11, 1))).toBe(true)
})
