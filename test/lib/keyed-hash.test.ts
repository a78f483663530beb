import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { KeyedHash } from '../../src/lib/keyed-hash.ts'

const words = (hash: KeyedHash) => [hash.h0, hash.h1, hash.h2, hash.h3].map((word) => word >>> 0)

/** The authors' test vectors. */
test('the hash is Chaskey-12 as published', () => {
  // Key and messages 0, 1, 2, … of the reference implementation, at the lengths where blocks begin and end.
  const key = [0x833d3433, 0x009f389f, 0x2398e64f, 0x417acf39]
  const vectors: [number, number[]][] = [
    [0, [0x43cb1f41, 0x51eba0c2, 0xff0a8ac3, 0x7ee3f642]],
    [1, [0xf9ac2067, 0x9c35a846, 0x441aad3d, 0x777b7330]],
    [2, [0x57da70c5, 0x2a873cb0, 0x19ee8b2a, 0x165cd82e]],
    [3, [0x8c5e6ab9, 0x5035adfb, 0xbff69f98, 0x965516d9]],
    [4, [0x0b2b62db, 0x1e9e3f50, 0xa1b8dcad, 0xb4279ae0]],
    [7, [0xb7d29cb8, 0x40a2819d, 0xae403cdb, 0x6fbefa95]],
    [8, [0x9faf57d6, 0xf4bc02cf, 0x6af6d831, 0xd2930d90]],
    [12, [0xc040258c, 0xf25392c0, 0x9f6b5dc0, 0x35c3d638]],
    [15, [0x03cfb44b, 0x283c8163, 0xfca71448, 0xc40a0aea]],
    [16, [0x5dd0e2a9, 0xfb5eac8c, 0x633a392e, 0x500c36f3]],
    [17, [0x8b5f6d5a, 0x202314f6, 0x22092368, 0x9639e606]],
    [31, [0x1d3d30b1, 0x01d74fca, 0x3b2eb54c, 0xd8cd36b4]],
    [32, [0x77962784, 0x07c647fa, 0xdd752c0f, 0xd2f5a799]],
    [33, [0xd74bb867, 0x2c0dfb3a, 0xb697e9cd, 0x5658edda]],
    [48, [0xf36e748b, 0x8f34677f, 0x1e00ba1b, 0xdd7da46d]],
    [63, [0x2dd072e1, 0x42b89efe, 0xfb26b615, 0x049aa451]],
  ]
  const hash = new KeyedHash('')
  for (const [length, expected] of vectors) {
    hash.updateWith(key, String.fromCharCode(...Array(length).keys()))
    expect(words(hash)).toEqual(expected)
  }
})

/** Two texts with one counter would let one caller use up another's limit. */
test('texts that look alike in some encoding have different hashes', () => {
  const texts = [
    '',
    '\0',
    '\x01',
    'a',
    'a\0',
    'a\x01',
    '\x01a',
    'é', // one byte
    'e\u0301',
    '\u0100', // two bytes: 00 01
    '\0\x01',
    '\u6161', // two bytes: 61 61
    'aa',
    '\ud800', // surrogates without their other half, which UTF-8 would make equal
    '\udc00',
    '\ufffd',
    '\ud83d\ude00',
    'x'.repeat(15),
    `${'x'.repeat(15)}\x01`, // looks like the padding of the text before it
    'x'.repeat(16),
    'x'.repeat(17),
    `${'x'.repeat(16)}\u0100`,
    `${'\u0100'}${'x'.repeat(16)}`,
  ]
  const hash = new KeyedHash('secret')
  const seen = new Set(
    texts.map((text) => {
      hash.update(text)
      return words(hash).join()
    }),
  )
  expect(seen.size).toBe(texts.length)
})

test('equal texts have equal hashes under one secret, however they were built, and others under another secret', () => {
  const one = new KeyedHash('one')
  const same = new KeyedHash('one')
  const two = new KeyedHash('two')
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 80 }), fc.nat(80), (text, cut) => {
      one.update(text)
      same.update([text.slice(0, cut), text.slice(cut)].join(''))
      two.update(text)
      expect(words(same)).toEqual(words(one))
      expect(words(two)).not.toEqual(words(one))
    }),
    { numRuns: 2_000 },
  )
})

/** Windows in Postgres are named by the hash, however the caller builds the text. */
test('a text after a prefix has the hash of both joined, also the second time and with wide characters', () => {
  const hash = new KeyedHash('secret')
  const whole = new KeyedHash('secret')
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 50 }),
    fc.string({ unit: fc.constantFrom('a', '\0', '\xff'), maxLength: 50 }),
  )
  fc.assert(
    fc.property(fc.array(texts, { minLength: 1, maxLength: 3 }), fc.array(texts), (prefixes, then) => {
      for (const text of [...then, ...then])
        for (const prefix of prefixes) {
          hash.updateAfter(prefix, text)
          whole.update(prefix + text)
          expect(words(hash)).toEqual(words(whole))
        }
    }),
    { numRuns: 1_000 },
  )
})

test('prefixes beyond the cached number are hashed correctly', () => {
  const hash = new KeyedHash('secret')
  const whole = new KeyedHash('secret')
  for (let turn = 0; turn < 2; turn++)
    for (let i = 0; i < 25_000; i++) {
      hash.updateAfter(`prefix ${i} of `, 'text')
      whole.update(`prefix ${i} of text`)
      if (hash.h0 !== whole.h0 || hash.h3 !== whole.h3) throw new Error(`another hash after ${i}`)
    }
  expect(words(hash)).toEqual(words(whole))
})
