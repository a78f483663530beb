import { join } from 'node:path'

/**
 * Which test files CI runs on which database. `bun test` alone runs all of them on the embedded one, `bun run nightly` all of
 * them on both.
 *
 * | lane | runs |
 * |---|---|
 * | `embedded` | what says something about the embedded database and about first runs; and one pass over every endpoint |
 * | `postgres` | everything but what the first lane alone runs |
 *
 * `bun test/lanes.ts <lane>` prints the files of a lane. `tidy.test.ts` holds the table to the files that there are.
 */
export const LANES = ['embedded', 'postgres'] as const
export type Lane = (typeof LANES)[number]

/** Patterns below test/ of files that CI runs in the first lane only. */
export const EMBEDDED_ONLY = [
  // Files for other programs.
  'deploy/{compose,confined,kubernetes,systemd}.test.ts',
  'api/vault/embedded.test.ts',
  'db/embedded/*.test.ts',
  // Ends of a process with its database in it. All others are in the other lane: what is kept is kept by the same steps.
  'start/embedded-ends.test.ts',
  // Launchers and first starts: they start the program as the README says, without a database.
  'docs/typescript.test.ts',
  'start/binary.test.ts',
  'start/container.test.ts',
  'start/script.test.ts',
  // What a release is made of: files, git and Node.
  'release/*.test.ts',
  // It has its own database, in simulated time.
  'simulation/*.test.ts',
]

/** Patterns below test/ of files in both lanes: the embedded database could answer differently. */
export const BOTH = [
  // Tests of one database in a file with those of the other.
  'docs/commands.test.ts',
  'start/full-disk.test.ts',
  // Every endpoint with the official clients.
  'sdk/**/*.test.ts',
  // How each of them is spoken to, and statements that do more than read a row by its id.
  'db/array-types.test.ts',
  'db/migrate.test.ts',
  'limiter/flush/flush.test.ts',
  'verify/credits.test.ts',
]

const test = join(import.meta.dir)

/** All test files, as paths below test/. */
export const testFiles = (): string[] => [...new Bun.Glob('**/*.test.ts').scanSync(test)].sort()

/** @returns the files of a lane, as paths below test/. */
export function filesOf(lane: Lane, files = testFiles()): string[] {
  const isOf = (patterns: readonly string[], file: string) =>
    patterns.some((pattern) => new Bun.Glob(pattern).match(file))
  return files.filter((file) =>
    lane === 'embedded' ? isOf([...EMBEDDED_ONLY, ...BOTH], file) : !isOf(EMBEDDED_ONLY, file),
  )
}

if (import.meta.main) {
  const [lane] = process.argv.slice(2)
  const known = LANES.find((each) => each === lane)
  if (known === undefined) {
    console.error(`no lane is called ${lane}: ${LANES.join(', ')}`)
    process.exit(2)
  }
  for (const file of filesOf(known)) console.log(`test/${file}`)
}
