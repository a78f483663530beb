/** One permission, or a list of which all (`and`) or at least one (`or`) must hold. Lists can be nested. */
export type PermissionQuery = string | { and: PermissionQuery[] } | { or: PermissionQuery[] }

/** Deeper nesting is refused. */
const DEPTH_MAX = 32

/**
 * Checks the shape of a query from a caller. As in v1, an empty or malformed list counts as absent, `and` wins over `or`,
 * and empty texts inside `and` are ignored.
 * @returns the query, or null when it is neither a text nor a usable list.
 */
export function parsePermissionQuery(value: unknown, depth = 0): PermissionQuery | null {
  if (typeof value === 'string') return value
  if (depth >= DEPTH_MAX || typeof value !== 'object' || value === null) return null
  const and = 'and' in value ? parseList(value.and, depth) : null
  if (and !== null) return { and: and.filter((part) => part !== '') }
  const or = 'or' in value ? parseList(value.or, depth) : null
  return or === null ? null : { or }
}

function parseList(list: unknown, depth: number): PermissionQuery[] | null {
  if (!Array.isArray(list) || list.length === 0) return null
  const parts: PermissionQuery[] = []
  for (const item of list) {
    const part = parsePermissionQuery(item, depth + 1)
    if (part === null) return null
    parts.push(part)
  }
  return parts
}

/**
 * Parses a query in words, the form of {@link describePermissionQuery}: `a`, `a or b`, `(a or b) and c`; `and` binds
 * tighter than `or`. A text that begins with a brace is the JSON of a query, for slugs with blanks or parentheses.
 * @returns null when it is neither.
 */
export function readPermissionText(text: string): PermissionQuery | null {
  if (!text.trimStart().startsWith('{')) return parseWords(text.match(/[()]|[^\s()]+/g) ?? [])
  try {
    return parsePermissionQuery(JSON.parse(text))
  } catch {
    return null
  }
}

function parseWords(tokens: readonly string[]): PermissionQuery | null {
  let next = 0
  const parts = (word: 'and' | 'or', part: () => PermissionQuery | null): PermissionQuery[] | null => {
    const list: PermissionQuery[] = []
    for (;;) {
      const one = part()
      if (one === null) return null
      list.push(one)
      if (tokens[next]?.toLowerCase() !== word) return list
      next++
    }
  }
  const either = (depth: number): PermissionQuery | null => {
    const list = parts('or', () => all(depth))
    return list === null ? null : list.length === 1 ? (list[0] ?? null) : { or: list }
  }
  const all = (depth: number): PermissionQuery | null => {
    const list = parts('and', () => single(depth))
    return list === null ? null : list.length === 1 ? (list[0] ?? null) : { and: list }
  }
  const single = (depth: number): PermissionQuery | null => {
    const token = tokens[next++]
    if (token === undefined || /^(\)|and|or)$/i.test(token) || depth >= DEPTH_MAX) return null
    if (token !== '(') return token
    const inner = either(depth + 1)
    return tokens[next++] === ')' ? inner : null
  }
  const query = either(0)
  return next === tokens.length ? query : null
}

/** Compares texts exactly: `*` and patterns have no special meaning. */
export function holdsPermissions(held: ReadonlySet<string>, query: PermissionQuery): boolean {
  if (typeof query === 'string') return held.has(query)
  // Loops, because this runs on every limit call and `some` would allocate a function.
  if ('and' in query) {
    for (const part of query.and) if (!holdsPermissions(held, part)) return false
    return true
  }
  for (const part of query.or) if (holdsPermissions(held, part)) return true
  return false
}

/** The query in words, for messages: `a`, `a or b`, `(a or b) and c`. */
export function describePermissionQuery(query: PermissionQuery): string {
  if (typeof query === 'string') return query
  const [parts, word] = 'and' in query ? [query.and, ' and '] : [query.or, ' or ']
  return parts
    .map((part) => (typeof part === 'string' ? part : `(${describePermissionQuery(part)})`))
    .join(word)
}
