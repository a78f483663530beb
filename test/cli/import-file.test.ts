import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { readImportFile } from '../../src/cli/import-file.ts'
import { FileError, type ImportRecord } from '../../src/lib/imports/read-import.ts'
import { hashKey } from '../../src/verify/secret.ts'

const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-import-file-'))
afterAll(() => rmSync(folder, { recursive: true }))

type Options = { format?: 'csv' | 'ndjson'; hasApi?: boolean; chunkBytes?: number }
async function read(
  bytes: string | Uint8Array,
  { format = 'csv', hasApi = true, chunkBytes = 1 << 18 }: Options = {},
): Promise<ImportRecord[]> {
  const path = join(folder, `${crypto.randomUUID()}.txt`)
  writeFileSync(path, bytes)
  const records = []
  for await (const record of readImportFile(path, format, { hasApi, chunkBytes })) records.push(record)
  return records
}

/** The fate of each line: `k` key, `x` problem, `-` skipped, `.` a further line of the same part. */
const fates = (records: ImportRecord[]): string =>
  records
    .map((record) => {
      const first = 'key' in record ? 'k' : 'problem' in record ? 'x' : '-'
      return first + '.'.repeat(record.lines - 1)
    })
    .join('')
const keysOf = (records: ImportRecord[]) => records.flatMap((record) => ('key' in record ? [record.key] : []))
const reasonsOf = (records: ImportRecord[]) =>
  records.flatMap((record) => ('problem' in record ? [`${record.line}: ${record.problem}`] : []))

describe('a quote opens only at the start of a cell, and no line is lost', () => {
  test('an inch sign in a name is an ordinary character (finding 7.1)', async () => {
    const records = await read(
      'plaintext,name\nkey_000000001,27" monitor\nkey_000000002,keyboard\nkey_000000003,32" screen\nkey_000000004,mouse',
    )
    expect(keysOf(records)).toEqual([
      { plaintext: 'key_000000001', name: '27" monitor' },
      { plaintext: 'key_000000002', name: 'keyboard' },
      { plaintext: 'key_000000003', name: '32" screen' },
      { plaintext: 'key_000000004', name: 'mouse' },
    ])
  })

  const cases: [string, string, string][] = [
    ['one that opens and never closes costs its line only', 'a,"unclosed\nb,b\nc,c', '-xkk'],
    ['one that the next quoted cell seems to close does too', 'a,"27\nb,b\nc,"good"\nd,d', '-xkkk'],
    ['one that closes over lines with too many cells does too', 'a,"27\nb,b\nc,x"\nd,d', '-k..k'],
    ['one whose row has other cells than the head does too', 'a,"27\nb,"\n,c\nd,d', '-k.xk'],
    ['behind one that closed nothing may follow', '"more"behind,x\nb,b', '-xk'],
    ['a row over lines with too many cells is refused by its first line', 'a,"27\nb",b\nc,c', '-xkk'],
    ['a quoted cell goes over lines, whatever ends them', 'a,"over\r\ntwo\nand\rthree"\nb,b', '-k...k'],
    ['doubled quotes are quotes', 'a,"say ""hi"""\nb,""\nc,""""', '-kkk'],
    ['empty lines are skipped', '\n \na,a\n\n', '---k-'],
    ['a blank before a quote makes it a part of the cell', 'a, "b"', '-k'],
    ['the last row may be cut off', 'a,"cut\noff', '-xx'],
    ['a cell too few or too many is refused', 'a\nb,b\nc,c,c', '-xkx'],
  ]
  for (const [name, rows, expected] of cases)
    for (const chunkBytes of [1, 7, 1 << 18])
      test(`${name} (chunks of ${chunkBytes})`, async () => {
        const records = await read(`plaintext,name\n${rows}`, { chunkBytes })
        expect(fates(records)).toBe(expected)
      })

  test('every line of any file is in exactly one part, in order, wherever chunks end', async () => {
    const cell = fc.constantFrom('a', 'b"', '"c"', '"', '""', '"d', 'e"f', ' ', '', '€', '"x,y"', '"\n"')
    const end = fc.constantFrom('\n', '\r\n', '\r')
    const row = fc.tuple(fc.array(cell, { maxLength: 3 }), end)
    await fc.assert(
      fc.asyncProperty(
        fc.array(row, { maxLength: 12 }),
        fc.integer({ min: 1, max: 9 }),
        async (rows, chunkBytes) => {
          const text = `plaintext,name\n${rows.map(([cells, lineEnd]) => cells.join(',') + lineEnd).join('')}`
          const records = await read(text)
          let line = 1
          for (const record of records) {
            expect(record.line).toBe(line)
            line += record.lines
          }
          const physical = text.split(/\r\n|\n|\r/)
          expect(line - 1).toBe(physical.length - (physical.at(-1) === '' ? 1 : 0))
          const strip = ({ bytesRead: _, ...record }: ImportRecord) => record
          expect((await read(text, { chunkBytes })).map(strip)).toEqual(records.map(strip))
        },
      ),
      { numRuns: 150 },
    )
  })

  test('lines end with LF, CRLF or CR, and a byte order mark is not part of a name', async () => {
    for (const end of ['\n', '\r\n', '\r'])
      for (const chunkBytes of [1, 4, 1000]) {
        const records = await read(`\uFEFFplaintext,name${end}a,ä${end}${end}b,"b"${end}`, { chunkBytes })
        expect(keysOf(records)).toEqual([
          { plaintext: 'a', name: 'ä' },
          { plaintext: 'b', name: 'b' },
        ])
        expect(fates(records)).toBe('-k-k')
        const lines = await read(`\uFEFF{"plaintext":"a"}${end}{"plaintext":${end}`, {
          format: 'ndjson',
          chunkBytes,
        })
        expect(fates(lines)).toBe('kx')
      }
  })

  test('a line of any length is refused by itself, and little of it is kept in memory', async () => {
    const long = 'x'.repeat(3_000_000)
    const csv = await read(`plaintext,name\na,${long}\r\nb,"${long}\nc,c\n`)
    expect(fates(csv)).toBe('-xxk')
    const ndjson = await read(`{"plaintext":"${long}"}\n{"plaintext":"a"}\n${long}`, { format: 'ndjson' })
    expect(fates(ndjson)).toBe('xkx')
  })

  test('a file with a stray quote on every line is read without delay', async () => {
    const rows = Array.from({ length: 50_000 }, (_, row) => `key-${row},"${row}`)
    const records = await read(`plaintext,name\n${rows.join('\n')}`)
    expect(fates(records)).toMatch(/^-[xk.]+$/)
    expect(records.reduce((sum, { lines }) => sum + lines, 0)).toBe(50_001)
  })
})

describe('a file in another format is refused in one line', () => {
  const utf16 = Buffer.from('\uFEFFplaintext\na', 'utf16le')
  const cases: [string | Uint8Array, RegExp, boolean?][] = [
    ['plaintext,name,name\na,b,c', /column "name" appears twice/],
    ['plaintext;name\na;b', /separated by ";"/],
    ['plaintext\tname\na\tb', /separated by "\\t"/],
    ['name,meta\na,{}', /no column "hash" or "plaintext"/],
    ['plaintext,secret\na,b', /column "secret" is unknown/],
    ['"plaintext\na', /begins with a quote/],
    ['plaintext\na', /no column "apiId"/, false],
    [utf16, /UTF-16/],
    [utf16.swap16(), /UTF-16/],
    [Buffer.from('plaintext', 'utf16le'), /UTF-16/],
    [Bun.gzipSync('plaintext\na'), /gzip/],
    [Buffer.from('PK\x03\x04…'), /spreadsheet/],
  ]
  for (const [bytes, message, hasApi = true] of cases)
    test(String(message), async () => {
      const failure = await read(bytes, { hasApi }).then(
        () => null,
        (cause: unknown) => cause,
      )
      expect(failure).toBeInstanceOf(FileError)
      expect(String(failure)).toMatch(message)
    })
})

describe('a key that no verification could find is refused', () => {
  const bytes = Buffer.from(hashKey('some key'), 'base64')
  const hash = hashKey('some key')
  const spellings = [
    hash,
    ` ${hash} `,
    hash.replace('=', ''),
    Buffer.from(bytes).toString('base64url'),
    Buffer.from(bytes).toString('hex'),
    Buffer.from(bytes).toString('hex').toUpperCase(),
    // The last two bits are not part of the hash: another digit means the same.
    `${hash.slice(0, 42)}${String.fromCharCode(hash.charCodeAt(42) + 1)}=`,
  ]
  test('each spelling of a hash becomes the form used for look-ups (finding 7.2)', async () => {
    for (const text of spellings) {
      expect(keysOf(await read(`hash\n${text}`))).toEqual([
        { hash: { value: hash, variant: 'sha256_base64' } },
      ])
      const line = JSON.stringify({ hash: { value: text, variant: 'sha256_base64' } })
      expect(keysOf(await read(line, { format: 'ndjson' }))).toEqual([
        { hash: { value: hash, variant: 'sha256_base64' } },
      ])
    }
  })

  test('a hash that is not SHA-256 is refused and not repeated, as it may be the key itself', async () => {
    const others = [
      'some key',
      hash.slice(1),
      `${hash}=`,
      Buffer.from(bytes).toString('hex').slice(1),
      new Bun.CryptoHasher('md5').update('some key').digest('hex'),
      new Bun.CryptoHasher('sha1').update('some key').digest('base64'),
      new Bun.CryptoHasher('sha512').update('some key').digest('base64'),
      `sha256:${Buffer.from(bytes).toString('hex')}`,
    ]
    for (const text of others) {
      const [reason = ''] = reasonsOf(await read(`hash\n${text}`))
      expect(reason).toMatch(/^2: hash: has \d+ characters; it must be the SHA-256 of the key/)
      expect(reason).not.toContain(text)
    }
  })

  test('a file without a head line, or with cells in the wrong columns, is refused without repeating a key', async () => {
    const key = 'sk_live_some_key'
    for (const bytes of [`${key}\n${key}2\n`, `${key},laptop\n`, `Ann,${key}\n`, `"${key}"`]) {
      const failure = await read(bytes).catch(String)
      expect(failure).toMatch(/no column "hash" or "plaintext"; if the file has no header line, add one/)
      expect(failure).not.toContain(key)
    }
    for (const field of ['expires', 'remaining', 'enabled', 'meta', 'refill']) {
      const [reason = ''] = reasonsOf(await read(`plaintext,${field}\nlaptop,${key}`))
      expect(reason).toStartWith(`2: ${field}: must be `)
      expect(reason).not.toContain(key)
    }
    const [reason] = reasonsOf(await read('plaintext,expires\nsome key,01.01.2030 10:00'))
    expect(reason).toBe(
      '2: expires: must be a time such as 2026-12-31T12:00Z, or Unix milliseconds, is "01.01.2030 10:00"',
    )
  })

  test('a text that no client can send unchanged is refused', async () => {
    const refused: [object, RegExp][] = [
      [{ plaintext: 'trailing\n' }, /begins or ends with white space/],
      [{ plaintext: 'trailing\r' }, /begins or ends with white space/],
      [{ plaintext: ' blank' }, /begins or ends with white space/],
      [{ plaintext: 'in\nside' }, /control character/],
      [{ plaintext: 'x'.repeat(4097) }, /a key has at most 4096/],
      [
        { plaintext: 'some key', hash: { value: hashKey('another'), variant: 'sha256_base64' } },
        /does not match plaintext/,
      ],
      [{ name: 'neither' }, /either hash or plaintext/],
      [{ plaintext: '' }, /either hash or plaintext/],
    ]
    for (const [key, reason] of refused)
      expect(reasonsOf(await read(JSON.stringify(key), { format: 'ndjson' }))[0]).toMatch(reason)
    const taken = [
      { plaintext: 'x'.repeat(4096) },
      { plaintext: 'some key', hash: { value: hash, variant: 'sha256_base64' } },
      { plaintext: '', hash: { value: hash, variant: 'sha256_base64' } },
    ]
    for (const key of taken)
      expect(keysOf(await read(JSON.stringify(key), { format: 'ndjson' }))).toEqual([key])
  })

  test('bytes that are not UTF-8 are refused with their line, as another text would be hashed', async () => {
    const latin1 = Buffer.from('plaintext\nschlüssel\nkey\n', 'latin1')
    expect(reasonsOf(await read(latin1))).toEqual(['2: it contains bytes that are not UTF-8'])
    expect(fates(await read(latin1))).toBe('-xk')
  })
})

test('a time in a CSV is a date, a date with a time of day, or Unix milliseconds, and never a duration', async () => {
  const times = ['2030-01-01', '2030-01-01T10:00+02:00', '2030-01-01 10:00:30', '1893456000000', '0']
  const rows = times.map((time, index) => `key-${index},${time}`)
  const keys = keysOf(await read(`plaintext,expires\n${rows.join('\n')}`))
  expect(keys.map(({ expires }) => expires)).toEqual([
    Date.UTC(2030, 0, 1),
    Date.UTC(2030, 0, 1, 8),
    Date.UTC(2030, 0, 1, 10, 0, 30),
    1_893_456_000_000,
    0,
  ])
  // Running the import twice would move the end.
  expect(fates(await read('plaintext,expires\nsome-key,30d'))).toBe('-x')
})
