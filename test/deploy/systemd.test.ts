import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig, SECRETS, unknownVariables } from '../../src/config.ts'
import { DEPLOY } from './manifests.ts'

const read = (name: string) => readFileSync(join(DEPLOY, 'systemd', name), 'utf8')
const unit = read('tollgate.service')
const addition = read('postgres.conf')
const valuesOf = (name: string, text = unit) =>
  [...text.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value = '']) => value)
const variablesOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    valuesOf('Environment', text)
      .flatMap((line) => line.split(' '))
      .map((each) => each.split('=')),
  )

test('the unit starts a server whose data directory systemd makes, and allows a stop its time', () => {
  const config = readConfig(variablesOf(unit))
  expect([config.dataDir, valuesOf('StateDirectory')]).toEqual(['/var/lib/tollgate', ['tollgate']])
  expect(valuesOf('WorkingDirectory')).toEqual([config.dataDir])
  // Ten seconds at most after the drain, and two to spare.
  expect(Number(valuesOf('TimeoutStopSec')[0])).toBe(config.drainMs / 1000 + 12)
})

/** Otherwise systemd would end a start that still waits for Postgres, and the log would not say for what. */
test('a start is given more time than the check that waits for it', () => {
  const [, seconds] =
    /^\S+ health --wait (\d+) --pid \$MAINPID$/.exec(valuesOf('ExecStartPost')[0] ?? '') ?? []
  expect(Number(seconds)).toBe(180)
  expect(Number(valuesOf('TimeoutStartSec')[0])).toBeGreaterThan(Number(seconds))
  expect(unit).toContain(`\nExecStart=${valuesOf('ExecStartPost')[0]?.split(' ')[0]} serve\n`)
})

test('the addition for a Postgres gives every secret as a credential, and says where it must be', () => {
  const env = variablesOf(addition)
  expect(valuesOf('LoadCredential', addition)).toEqual(
    SECRETS.map((name) => `${name}:/etc/tollgate/secrets/${name}`),
  )
  // By name, not only found when there: without its file a server would go on with an empty embedded database.
  expect(env).toEqual(
    Object.fromEntries(SECRETS.map((name) => [`${name}_FILE`, `/run/credentials/%n/${name}`])),
  )
})

test('the example of settings has variables that exist, and no secret', () => {
  const lines = read('tollgate.env.example')
    .split('\n')
    .map((line) => line.replace(/^#(?=[A-Z_]+=)/, ''))
    .filter((line) => line !== '' && !line.startsWith('#'))
  expect(lines.length).toBeGreaterThan(3)
  const env = Object.fromEntries(lines.map((line) => line.split('=')))
  expect(unknownVariables(env)).toEqual([])
  readConfig({ ...variablesOf(unit), ...env })
  for (const name of SECRETS) expect(Object.keys(env)).not.toContain(name)
})

/** Exposure 0 to 100 that systemd computes from what a unit is left to do; without any restriction it is 96. */
const EXPOSURE_MAX = 20
const ANALYZE = Bun.which('systemd-analyze')
describe.skipIf(ANALYZE === null)(
  `according to systemd${ANALYZE === null ? ' (skipped: systemd-analyze is not installed)' : ''}`,
  () => {
    /** The unit with all additions that are in the folder, with a program that this machine has. */
    const analyze = (...words: string[]) => {
      const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-unit-'))
      try {
        const path = join(folder, 'tollgate.service')
        const service = addition.slice(addition.indexOf('[Service]\n') + '[Service]\n'.length)
        writeFileSync(
          path,
          unit
            .replaceAll('/usr/local/bin/tollgate', process.execPath)
            .replace('[Service]\n', `[Service]\n${service}`),
        )
        const done = Bun.spawnSync([ANALYZE ?? '', ...words, path])
        return { code: done.exitCode, out: done.stdout.toString(), err: done.stderr.toString() }
      } finally {
        rmSync(folder, { recursive: true })
      }
    }

    test('the unit has no errors', () => {
      const { err } = analyze('verify', '--man=no')
      // Units of this machine may have their own problems.
      expect(err.split('\n').filter((line) => line.includes('tollgate.service'))).toEqual([])
    })

    test(`the unit leaves little of the machine open: exposure below ${EXPOSURE_MAX} of 100`, () => {
      const { code, out } = analyze('security', '--offline=yes', `--threshold=${EXPOSURE_MAX}`, '--no-pager')
      expect([code, out.match(/Overall exposure level.*/)?.[0]]).toEqual([
        0,
        expect.stringMatching(/: [01]\.\d OK/),
      ])
    })
  },
)
