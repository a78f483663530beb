import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { datedSection, releasedChangelog } from './changelog.ts'
import { git, reasonsAgainst } from './checks.ts'
import { makeRelease } from './make.ts'
import { recordMigrations } from './migrations.ts'
import { Refusal } from './refusal.ts'
import { differencesOf, sign } from './sums.ts'
import { writeVersion } from './versions.ts'

/**
 * `bun run release`: what a release is made of, and whether it is what it says. Nothing is published from here: the workflow
 * .github/workflows/release.yml does that. release/README.md tells the order.
 */

const USAGE = `usage: bun run release --prepare <version> [--date YYYY-MM-DD]
         writes version, date and migrations into the clone; commit what it changed
       bun run release --dry-run <version> [--minisign-key <file>]
         makes everything from the commit that is checked out, in dist/release/
       bun run release --verify <version> [--sums <file>]
         makes everything again and compares it with the sums, of dist/release/ unless you name others
`

const folder = join(import.meta.dir, '..')
const out = join(folder, 'dist/release')
const say = (line: string) => void process.stdout.write(`${line}\n`)

async function prepare(version: string, date: string): Promise<void> {
  if (!/^\d+\.\d+\.\d+$/.test(version))
    throw new Refusal([`the version is ${version}; it must be like 0.2.0`])
  if (!/^\d{4}-\d{2}-\d{2}$/.test(date))
    throw new Refusal([`the date is ${date}; it must be like 2026-11-28`])
  if (git(folder, 'rev-parse', '--verify', '--quiet', `v${version}^{commit}`) !== '')
    throw new Refusal([`${version} is released: there is a tag v${version}`])
  writeVersion(folder, version)
  const path = join(folder, 'CHANGELOG.md')
  const changelog = readFileSync(path, 'utf8')
  if (datedSection(changelog, version) === null)
    writeFileSync(path, releasedChangelog(changelog, version, date))
  await recordMigrations(folder, version)
  say(`${version} is prepared: read the changes, run the checks, commit`)
}

async function make(version: string, into: string): Promise<void> {
  const reasons = await reasonsAgainst(folder, version)
  if (reasons.length > 0) throw new Refusal(reasons)
  await makeRelease({ folder, into, version, say })
}

async function verify(version: string, sums: string): Promise<void> {
  // First, because the rest takes minutes.
  const given = readSums(sums)
  const into = mkdtempSync(join(tmpdir(), 'tollgate-verify-'))
  try {
    await make(version, into)
    const differences = differencesOf(given, readSums(join(into, 'SHA256SUMS')))
    if (differences.length > 0) throw new Refusal(differences)
    say(`${given.trim().split('\n').length} files are the same as in ${sums}`)
  } finally {
    rmSync(into, { recursive: true, force: true })
  }
}

function readSums(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new Refusal([`the sums cannot be read: ${cause instanceof Error ? cause.message : cause}`])
  }
}

/** @returns the exit status: 0 done, 1 refused, 2 usage error. */
async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    args: process.argv.slice(2),
    options: {
      prepare: { type: 'boolean' },
      'dry-run': { type: 'boolean' },
      verify: { type: 'boolean' },
      date: { type: 'string' },
      sums: { type: 'string' },
      'minisign-key': { type: 'string' },
    },
    allowPositionals: true,
  })
  const [version, ...others] = positionals
  const modes = [values.prepare, values['dry-run'], values.verify].filter((each) => each === true)
  if (version === undefined || others.length > 0 || modes.length !== 1)
    throw new TypeError('one of three, and a version')
  if (values.prepare === true) await prepare(version, values.date ?? new Date().toISOString().slice(0, 10))
  else if (values.verify === true) await verify(version, resolve(values.sums ?? join(out, 'SHA256SUMS')))
  else {
    await make(version, out)
    const key = values['minisign-key']
    if (key !== undefined) sign(out, { key: resolve(key), version })
    say(`${out}: ${key === undefined ? 'not signed' : 'signed'}, nothing is published`)
  }
  return 0
}

process.exit(
  await main().catch((cause: unknown) => {
    if (cause instanceof Refusal) {
      for (const reason of cause.reasons) process.stderr.write(`refused: ${reason}\n`)
      return 1
    }
    if (cause instanceof TypeError) {
      process.stderr.write(`${cause.message}\n${USAGE}`)
      return 2
    }
    throw cause
  }),
)
