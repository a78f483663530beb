import { badRequest } from '../errors.ts'

/** Of a key, an identity, or the resources of a limit, as JSON: each verification answers with it, and memory holds it. */
export const META_CHARACTERS_MAX = 64_000

/**
 * The JSON text to store; null when not given.
 * @param path Where it stands in the request, for the message.
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
