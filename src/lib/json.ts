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

/** Could the parsed text hold something unstorable? Never wrong when it says no, and cheap: a pass over the text, no objects. */
export function mayBeUnstorable(json: string): boolean {
  // Without an escape or the name itself, only nesting is left, and a short text has no room for that.
  if (json.includes('\\u') || json.includes('__proto__')) return true
  return json.length > 2 * JSON_DEPTH_MAX && depthOf(json) > JSON_DEPTH_MAX
}

/** How deep the brackets of well-formed JSON nest. */
function depthOf(json: string): number {
  let depth = 0
  let deepest = 0
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case QUOTE:
        at = endOfText(json, at)
        break
      case OPEN_LIST:
      case OPEN_OBJECT:
        depth++
        if (depth > deepest) deepest = depth
        break
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        depth--
        break
    }
  }
  return deepest
}

/** @param from Where its opening quote is. @returns where the closing one is. */
function endOfText(json: string, from: number): number {
  for (let at = from + 1; at < json.length; at++) {
    const code = json.charCodeAt(at)
    if (code === BACKSLASH) at++
    else if (code === QUOTE) return at
  }
  return json.length
}

const [QUOTE, BACKSLASH, OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [34, 92, 91, 93, 123, 125]

export function unstorableText(text: string): string | null {
  if (text.includes('\0')) return 'String must not contain NUL characters'
  if (!text.isWellFormed()) return 'String must not contain lone surrogates'
  return null
}
