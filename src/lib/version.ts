import packageJson from '../../package.json' with { type: 'json' }

/** Version of this program, from package.json: `0.1.0`. */
export const VERSION: string = packageJson.version

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
