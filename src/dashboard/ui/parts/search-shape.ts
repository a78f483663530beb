/** The page that a text means by its shape; null = it must be searched. */
export function destinationOf(text: string): string | null {
  const [, kind] = /^(key|id|api|req)_[1-9A-HJ-NP-Za-km-z]{16}$/.exec(text) ?? []
  switch (kind) {
    case 'key':
      return `keys/${text}`
    case 'id':
      return `identities/${text}`
    case 'api':
      return `apis/${text}`
    case 'req':
      return `why?request=${text}`
    default:
      return null
  }
}

/**
 * Whether a text may be a whole key: a secret, which may not be searched for by its beginning or appear in an address. Keys
 * end in the base 58 of 16 random bytes or more.
 */
export const looksLikeKey = (text: string): boolean =>
  destinationOf(text) === null && /^(\S*_)?[1-9A-HJ-NP-Za-km-z]{20,}$/.test(text)
