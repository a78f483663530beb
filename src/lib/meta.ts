import { badRequest } from '../errors.ts'

/**
 * Longest meta of a key or identity, and longest resources of a limit, in characters of JSON: they are kept in memory and
 * returned with each verification.
 */
export const META_CHARACTERS_MAX = 64_000

/**
 * The JSON text to store; null when absent.
 * @param path Place in the request, for the message.
 * @throws ApiError BAD_REQUEST when it is too long.
 */
export function readMeta(meta: object | null | undefined, path = 'meta'): string | null {
  if (meta === undefined || meta === null) return null
  const text = JSON.stringify(meta)
  if (text.length > META_CHARACTERS_MAX)
    throw badRequest(`${path}: must be at most ${META_CHARACTERS_MAX} characters of JSON, has ${text.length}`)
  return text
}

/** @param text As stored, from a checked object. */
export const parseMeta = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>) // see above
