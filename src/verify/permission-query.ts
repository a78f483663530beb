import { ApiError } from '../errors.ts'
import { cutText } from '../lib/cut-text.ts'

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
  try {
    if (text.trimStart().startsWith('{')) return parsePermissionQuery(JSON.parse(text))
    return new WordsParser(text, ANY_SLUGS).parse()
  } catch (cause) {
    if (cause instanceof SyntaxError || cause instanceof PermissionSyntaxError) return null
    throw cause
  }
}

/**
 * Parses a query in words whose slugs have only letters, digits and `. _ - * : /`. The length of the text bounds how deep it nests.
 * @throws {@link PermissionSyntaxError}
 */
export const parsePermissionWords = (text: string): PermissionQuery =>
  new WordsParser(text, PLAIN_SLUGS).parse()

/** A permission query in words that cannot be parsed. */
export class PermissionSyntaxError extends ApiError {
  override name = 'PermissionSyntaxError'
  /** @param position Where in the text, from 0. */
  constructor(
    reason: string,
    readonly position: number,
  ) {
    super('BAD_REQUEST', `the permission query has a syntax error at position ${position}: ${reason}`)
  }
}

type Grammar = {
  /** Finds one token: a parenthesis, a slug or word, or a character that is neither. */
  token: RegExp
  /** Whether a token that is no parenthesis and no word is a slug. */
  slug: RegExp
  depthMax: number
}
const ANY_SLUGS: Grammar = { token: /[()]|[^\s()]+/g, slug: /./s, depthMax: DEPTH_MAX }
const PLAIN_SLUGS: Grammar = {
  token: /[()]|[A-Za-z0-9._\-*:/]+|\S/gu,
  slug: /^[A-Za-z0-9._\-*:/]/,
  depthMax: Number.POSITIVE_INFINITY,
}

class WordsParser {
  readonly #text: string
  readonly #grammar: Grammar
  readonly #tokens: RegExpExecArray[]
  #next = 0

  constructor(text: string, grammar: Grammar) {
    this.#text = text
    this.#grammar = grammar
    this.#tokens = [...text.matchAll(grammar.token)]
  }

  parse(): PermissionQuery {
    const query = this.#either(0)
    if (this.#next < this.#tokens.length) throw this.#unexpected('AND, OR or the end')
    return query
  }

  #either(depth: number): PermissionQuery {
    const first = this.#all(depth)
    if (!this.#takesWord('or')) return first
    const or = [first]
    do or.push(this.#all(depth))
    while (this.#takesWord('or'))
    return { or }
  }

  #all(depth: number): PermissionQuery {
    const first = this.#single(depth)
    if (!this.#takesWord('and')) return first
    const and = [first]
    do and.push(this.#single(depth))
    while (this.#takesWord('and'))
    return { and }
  }

  #single(depth: number): PermissionQuery {
    const token = this.#tokens[this.#next]?.[0]
    if (token === undefined || depth >= this.#grammar.depthMax || !this.#beginsOperand(token))
      throw this.#unexpected('a permission or (')
    this.#next++
    if (token !== '(') return token
    const inner = this.#either(depth + 1)
    if (this.#tokens[this.#next]?.[0] !== ')') throw this.#unexpected('AND, OR or )')
    this.#next++
    return inner
  }

  #beginsOperand(token: string): boolean {
    return token === '(' || (!/^(\)|and|or)$/i.test(token) && this.#grammar.slug.test(token))
  }

  #takesWord(word: 'and' | 'or'): boolean {
    if (this.#tokens[this.#next]?.[0].toLowerCase() !== word) return false
    this.#next++
    return true
  }

  #unexpected(expected: string): PermissionSyntaxError {
    const token = this.#tokens[this.#next]
    const found = token === undefined ? 'the end' : JSON.stringify(cutText(token[0], FOUND_CHARACTERS_MAX))
    return new PermissionSyntaxError(
      `expected ${expected}, found ${found}`,
      token?.index ?? this.#text.length,
    )
  }
}
const FOUND_CHARACTERS_MAX = 40

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
