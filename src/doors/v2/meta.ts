import { InvalidInput } from '../../errors.ts'
import { META_CHARACTERS_MAX, parseMeta } from '../../lib/meta.ts'

/** @throws InvalidInput when it is too long. */
export function requireShortMeta(meta: object | null | undefined): void {
  const length = meta ? JSON.stringify(meta).length : 0
  if (length > META_CHARACTERS_MAX)
    throw new InvalidInput(
      'meta',
      `too large: ${length} characters of JSON, at most ${META_CHARACTERS_MAX} are allowed`,
    )
}

/** Null when empty: answers leave it out. @param text As stored. */
export function metaOf(text: string | null): Record<string, unknown> | null {
  const meta = parseMeta(text)
  return meta === null || Object.keys(meta).length === 0 ? null : meta
}
