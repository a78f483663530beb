import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { commitOf } from './git-commit.ts'

/** Version of this program, from package.json: `0.2.0`. */
export const VERSION: string = packageJson.version

/** Written into the binary by build.ts. */
declare const TOLLGATE_COMMIT: string | undefined

/** The first 12 digits of the commit that this program was built from, or that is checked out; `unknown` if neither is known. */
export const COMMIT: string = (
  typeof TOLLGATE_COMMIT === 'string'
    ? TOLLGATE_COMMIT
    : (commitOf(join(import.meta.dir, '../..')) ?? 'unknown')
).slice(0, 12)

/** Whether version `a` is before version `b`. Parts that are not there are 0: `0.1` and `0.1.0` are the same. */
export function isOlder(a: string, b: string): boolean {
  const [ofA, ofB] = [parts(a), parts(b)]
  for (let i = 0; i < 3; i++) {
    const difference = (ofA[i] ?? 0) - (ofB[i] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

const parts = (version: string) => version.split(/[.+-]/, 3).map((part) => Number.parseInt(part, 10) || 0)
