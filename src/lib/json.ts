/** Nesting deeper than this is refused: no field of the API needs it, and nothing here should recurse on a stranger's depth. */
export const JSON_DEPTH_MAX = 64

/**
 * What makes a parsed JSON value unfit to store, if anything: NUL characters and lone surrogates (Postgres text holds
 * neither), `__proto__` as a name, nesting beyond {@link JSON_DEPTH_MAX}.
 * @returns the path (dots between names) and the reason, or null.
 */
export function findUnstorable(value: unknown): { path: string; reason: string } | null {
  // A list of what is still to visit instead of recursion: depth must not become our stack.
  const open: { value: unknown; path: string; depth: number }[] = [{ value, path: '', depth: 0 }]
  for (let item = open.pop(); item !== undefined; item = open.pop()) {
    const { path, depth } = item
    if (typeof item.value === 'string') {
      const reason = unstorableText(item.value)
      if (reason !== null) return { path, reason }
    } else if (typeof item.value === 'object' && item.value !== null) {
      if (depth >= JSON_DEPTH_MAX) return { path, reason: `Nested deeper than ${JSON_DEPTH_MAX} levels` }
      for (const [name, child] of Object.entries(item.value)) {
        const childPath = path === '' ? name : `${path}.${name}`
        const reason = name === '__proto__' ? 'Not allowed as a name' : unstorableText(name)
        if (reason !== null) return { path: childPath, reason }
        open.push({ value: child, path: childPath, depth: depth + 1 })
      }
    }
  }
  return null
}

/** Could the parsed text hold something unstorable? Cheap and never wrong when it says no. */
export function mayBeUnstorable(json: string): boolean {
  // Below this length no text can nest too deep; the rest needs an escape or the name itself.
  return json.length > 2 * JSON_DEPTH_MAX || json.includes('\\u') || json.includes('__proto__')
}

export function unstorableText(text: string): string | null {
  if (text.includes('\0')) return 'String must not contain NUL characters'
  if (!text.isWellFormed()) return 'String must not contain lone surrogates'
  return null
}
