import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { type Command, parse } from '../../src/cli/arguments.ts'
import { CallError } from '../../src/cli/client.ts'
import { COMMANDS } from '../../src/cli/commands.ts'
import { failureOf, failureText } from '../../src/cli/failure.ts'
import { systemTerminal } from '../../src/cli/terminal.ts'
import { UsageError } from '../../src/cli/usage-error.ts'
import { ALL_ERRORS } from '../../src/errors.ts'
import { outcomeOf } from '../support/outcome.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const told = (cause: unknown, isJson = false) =>
  failureText(failureOf(cause, { command: 'key get', listCommand: 'key list' }), { isJson })

test('for every error code of the server there is one line and one hint', () => {
  for (const code of Object.keys(ALL_ERRORS)) {
    const cause = new CallError(`400 ${code}: refused`, { status: 400, code, requestId: 'req_1' })
    expect(told(cause)).toMatch(/^400 \w+: refused \(request req_1\)\nhint: [^\n]+\n$/)
  }
})

test('a message of the server stays on one line, and cannot move the cursor', () => {
  const cause = new CallError('400 BAD_REQUEST: two\nlines \x1b[2J', { status: 400, code: 'BAD_REQUEST' })
  expect(told(cause)).toStartWith('400 BAD_REQUEST: two\\u000alines \\u001b[2J\nhint: ')
  expect(JSON.parse(told(cause, true)).error.message).toBe(cause.message)
})

test('a bug is one line with its place in the source, without a stack', () => {
  const text = told(new TypeError('undefined is not a function'))
  expect(text).toStartWith(
    'bug in Tollgate: TypeError: undefined is not a function\nhint: please report it with this location: ',
  )
  expect(text.trimEnd().split('\n')).toHaveLength(2)
  expect(told('thrown text')).toContain('bug in Tollgate: thrown text')
})

/** A mistyped command line must never look like a bug, and never be repeated. */
test('any words are parsed, or refused as a usage error that repeats none of them', () => {
  const optionsOf = ({ options = {} }: Command) => Object.keys(options)
  const names = [...new Set(['url', 'root-key-file', 'json', ...COMMANDS.flatMap(optionsOf)])]
  const word = fc.oneof(
    fc.string(),
    fc.constantFrom('-', '--', '--=', '-h=', '--__proto__', '--constructor=x', 'SECRET'),
    fc.constantFrom(...names).map((name) => `--${name}`),
    fc.constantFrom(...names).map((name) => `--${name}=SECRET`),
  )
  fc.assert(
    fc.property(fc.constantFrom(...COMMANDS), fc.array(word, { maxLength: 6 }), (command, words) => {
      try {
        parse(command, words, systemTerminal)
      } catch (cause) {
        if (!(cause instanceof UsageError)) throw cause
        expect(cause.message).not.toContain('SECRET')
      }
    }),
    { numRuns: 3000 },
  )
})

describe('in a process that hits a bug', () => {
  const MAIN = join(import.meta.dir, '../../src/main.ts')

  async function failing(words: string[]) {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-failure-'))
    try {
      const preload = join(folder, 'preload.js')
      writeFileSync(preload, `URL.canParse = () => { throw new RangeError('made up') }\n`)
      const env = { PATH: process.env.PATH ?? '', PORT: '0', TOLLGATE_DATA_DIR: folder }
      return await outcomeOf(
        Bun.spawn([process.execPath, '--preload', preload, MAIN, ...words], {
          cwd: folder,
          env: { ...env, TOLLGATE_URL: 'http://127.0.0.1:1', TOLLGATE_PUBLIC_URL: 'http://127.0.0.1:1' },
          stdin: 'ignore',
          stdout: 'pipe',
          stderr: 'pipe',
        }),
      )
    } finally {
      rmSync(folder, { recursive: true })
    }
  }

  test('a command ends with status 1 and names the place', async () => {
    expect(await failing(['api', 'list'])).toEqual({
      code: 1,
      out: '',
      err: expect.stringMatching(
        /^bug in Tollgate: RangeError: made up\nhint: please report it with this location: src\/config\.ts:\d+\n$/,
      ),
    })
  })

  test('a start logs the stack, and ends with status 1', async () => {
    const { code, out, err } = await failing(['serve', '--json'])
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(JSON.parse(err)).toMatchObject({
      event: 'start_failed',
      level: 'error',
      cause: { name: 'RangeError', message: 'made up', stack: expect.any(Array) },
    })
  })
})
