/**
 * Deepest accepted nesting. No field of the API needs more, and no function here may recurse as deep as a caller chooses.
 */
export const JSON_DEPTH_MAX = 64

/**
 * Finds what makes a parsed JSON value impossible to store: NUL characters and lone surrogates (Postgres text has neither),
 * the name `__proto__`, nesting beyond {@link JSON_DEPTH_MAX}. Recurses no deeper than that.
 * @param depth Depth of `value` in the parsed document.
 * @returns the path of the first one (names joined by dots) and the reason, or null.
 */
export function findUnstorable(value: unknown, depth = 0): { path: string; reason: string } | null {
  if (typeof value === 'string') {
    const reason = unstorableText(value)
    return reason === null ? null : { path: '', reason }
  }
  if (typeof value !== 'object' || value === null) return null
  if (depth >= JSON_DEPTH_MAX) return { path: '', reason: `Nested deeper than ${JSON_DEPTH_MAX} levels` }
  // A body can have half a million elements, so none may cost an allocation. A path is built only after a problem was
  // found.
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const element: unknown = value[i]
      if (typeof element === 'number') continue // no call for numbers, the shortest and so potentially most numerous elements
      const problem = findUnstorable(element, depth + 1)
      if (problem !== null) return { path: joined(String(i), problem.path), reason: problem.reason }
    }
    return null
  }
  const fields = value as Record<string, unknown> // it is an object made by JSON.parse
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
 * A cheap first check. False = the value can certainly be stored. Two searches of the text, and a walk over the value down
 * to 64 levels. (Following the brackets of the text instead took 280 µs for 88 kB, three quarters of the parsing; the walk
 * takes 10.)
 * @param value The parsed `json`.
 */
export function mayBeUnstorable(json: string, value: unknown): boolean {
  // Without an escape or the name `__proto__` only nesting is left, for which a short text has no room.
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
  const fields = value as Record<string, unknown> // it is an object made by JSON.parse
  for (const name in fields) if (isDeeper(fields[name], levelsMax - 1)) return true
  return false
}

export function unstorableText(text: string): string | null {
  if (text.includes('\0')) return 'String must not contain NUL characters'
  if (!text.isWellFormed()) return 'String must not contain lone surrogates'
  return null
}
