/** An identifier as a part of a path: a browser would take `..` for a step up, and nothing for no part. */
export const pathOfIdentifier = (identifier: string): string =>
  /^(=|\.{0,2}$)/.test(identifier) ? `=${encodeURIComponent(identifier)}` : encodeURIComponent(identifier)
export const identifierOfPath = (part: string): string => (part.startsWith('=') ? part.slice(1) : part)
