import { describe, expect, test } from 'bun:test'
import {
  FileError,
  type ImportOptions,
  type ImportRecord,
  readColumns,
  readImport,
} from '../../../src/lib/imports/read-import.ts'
import { readKeyHash } from '../../../src/lib/key-hash.ts'
import { hashKey } from '../../../src/verify/secret.ts'

/** What the dashboard asks of the reader besides the command line, whose tests are in `cli/import-file.test.ts`. */

async function* chunksOf(text: string, size = text.length || 1): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function read(text: string, options: Partial<ImportOptions> = {}, size?: number) {
  const records: ImportRecord[] = []
  for await (const record of readImport(chunksOf(text, size), 'csv', { hasApi: true, ...options }))
    records.push(record)
  return records
}
const keysOf = (records: ImportRecord[]) => records.flatMap((each) => ('key' in each ? [each.key] : []))

describe('columns of any name', () => {
  const HASH = hashKey('some key')
  const TEXT = `Token,Who,Note,Until\r\n${HASH},"user ""a"",\r\nb",secret,2026-12-31\r\n${HASH},c,d\r\n`

  test('are the fields that they are said to be, and those without a field are left out', async () => {
    for (const size of [1, 2, 7, 1000]) {
      const records = await read(`\ufeff${TEXT}`, { columns: ['hash', 'externalId', null, 'expires'] }, size)
      expect(keysOf(records)).toEqual([
        {
          hash: { value: HASH, variant: 'sha256_base64' },
          externalId: 'user "a",\r\nb',
          expires: Date.UTC(2026, 11, 31),
        },
      ])
      // A row with a missing cell is told apart from one with an empty one.
      expect(records.at(-1)).toMatchObject({ line: 4, problem: 'it has 3 cells, the header line has 4' })
      // Whoever saves refused lines needs them as they are.
      expect(records.map(({ text }) => text).join('')).toBe(TEXT)
    }
  })

  test('are named by the first line with text, whatever the size of the chunks', async () => {
    const names = ['Token', 'a "b"', 'x\ny', '']
    for (const size of [1, 3, 100])
      expect(
        await readColumns(chunksOf('\ufeff\n \r\n Token ,"a ""b""","x\ny",\r\nsecret,1,2,3\n', size)),
      ).toEqual(names)
    expect(await readColumns(chunksOf('only'))).toEqual(['only'])
    expect(await readColumns(chunksOf('a,b\n'))).toEqual(['a', 'b'])
    expect(await readColumns(chunksOf(''))).toEqual([])
  })

  test('of a file that is no CSV are refused with what to do', async () => {
    const problem = (text: string) =>
      readColumns(chunksOf(text)).then(
        () => null,
        (cause: unknown) => (cause instanceof FileError ? cause.message : cause),
      )
    expect(await problem('a;b;c\n')).toContain('separated by ";"')
    expect(await problem('PK\u0003\u0004xyz')).toContain('spreadsheet')
    expect(await problem('"never closed\n')).toContain('does not end with one')
    expect(await problem(`"${'x'.repeat(1_100_000)}`)).toContain('longer than')
  })
})

/** A browser on plain HTTP has no SHA-256. */
test('a text beside a hash is refused where it cannot be hashed, and compared where it can', async () => {
  const both = `plaintext,hash\nsome key,${hashKey('some key')}\nother,${hashKey('some key')}\n`
  const reasons = async (options: Partial<ImportOptions>) =>
    (await read(both, options)).flatMap((each) => ('problem' in each ? [each.problem] : []))
  expect(await reasons({})).toEqual(Array(2).fill('has both plaintext and hash; leave one of them out'))
  expect(await reasons({ hashOf: hashKey })).toEqual(['hash: does not match plaintext'])
})

test('a hash in hex, base64url, without padding or with other last bits is the same hash', () => {
  const bytes = new Uint8Array(32).map((_, index) => 251 - index * 7)
  const base64 = Buffer.from(bytes).toString('base64')
  const last = base64.at(42) as string // 44 digits
  const after = String.fromCharCode(last.charCodeAt(0) + 1)
  for (const text of [
    base64,
    base64.slice(0, 43),
    ` ${Buffer.from(bytes).toString('hex')}\n`,
    Buffer.from(bytes).toString('hex').toUpperCase(),
    Buffer.from(bytes).toString('base64url'),
    `${base64.slice(0, 42)}${after}=`,
  ])
    expect(readKeyHash(text)).toBe(base64)
  for (const text of ['', base64.slice(0, 42), `${base64}=`, `${base64.slice(0, 42)}*=`])
    expect(readKeyHash(text)).toBeNull()
})
