/** Nesting deeper than this is refused: no field of the API needs it, and nothing here should recurse on a stranger's depth. */
export const JSON_DEPTH_MAX = 64

/**
 * What makes a parsed JSON value unfit to store, if anything: NUL characters and lone surrogates (Postgres text holds
 * neither), `__proto__` as a name, nesting beyond {@link JSON_DEPTH_MAX}. It recurses no deeper than that.
 * @param depth Of the value, in what was parsed.
 * @returns the path of the first (dots between names) and the reason, or null.
 */
export function findUnstorable(value: unknown, depth = 0): { path: string; reason: string } | null {
  if (typeof value === 'string') {
    const reason = unstorableText(value)
    return reason === null ? null : { path: '', reason }
  }
  if (typeof value !== 'object' || value === null) return null
  if (depth >= JSON_DEPTH_MAX) return { path: '', reason: `Nested deeper than ${JSON_DEPTH_MAX} levels` }
  // Of half a million elements, as one body can have, none may cost an allocation: a path is only made on the way out.
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const element: unknown = value[i]
      if (typeof element === 'number') continue // no call for the shortest, of which there can be the most
      const problem = findUnstorable(element, depth + 1)
      if (problem !== null) return { path: joined(String(i), problem.path), reason: problem.reason }
    }
    return null
  }
  const fields = value as Record<string, unknown> // an object that JSON made
  for (const name in fields) {
    const reason = name === '__proto__' ? 'This field name is not allowed' : unstorableText(name)
    if (reason !== null) return { path: name, reason }
    const problem = findUnstorable(fields[name], depth + 1)
    if (problem !== null) return { path: joined(name, problem.path), reason: problem.reason }
  }
  return null
}

const joined = (name: string, path: string) => (path === '' ? name : `${name}.${path}`)

/**
 * Could the value hold something notStorable? Never wrong when it says no, and cheap: two searches of the text, and a walk over
 * the value, which is 64 levels deep at most. (Refused: to follow the brackets of the text. Of 88 kB it took 280 µs, as much
 * as three quarters of the parsing; the walk takes 10.)
 * @param value What `json` was parsed to.
 */
export function mayBeUnstorable(json: string, value: unknown): boolean {
  // Without an escape or the name itself, only nesting is left, and a short text has no room for that.
  if (json.includes('\\u') || json.includes('__proto__')) return true
  return json.length > 2 * JSON_DEPTH_MAX && isDeeper(value, JSON_DEPTH_MAX)
}

function isDeeper(value: unknown, levelsMax: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levelsMax === 0) return true
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (isDeeper(value[i], levelsMax - 1)) return true
    return false
  }
  const fields = value as Record<string, unknown> // an object that JSON made
  for (const name in fields) if (isDeeper(fields[name], levelsMax - 1)) return true
  return false
}

export function unstorableText(text: string): string | null {
  if (text.includes('\0')) return 'String must not contain NUL characters'
  if (!text.isWellFormed()) return 'String must not contain lone surrogates'
  return null
}
