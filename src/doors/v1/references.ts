import { badRequest } from '../../errors.ts'
import type { Reference } from '../../lib/link-plan.ts'

/** A role or permission in a request. `id` wins over the texts, `slug` over its old name `name`. */
export type LinkElement = { id?: string; slug?: string; name?: string; create?: boolean }

/**
 * @param path Place of the list in the request, for the message.
 * @throws ApiError BAD_REQUEST for an element without any of the fields.
 */
export function readReferences(elements: readonly LinkElement[], path: string): Reference[] {
  return elements.map(({ id, slug, name, create = false }, index) => {
    if (id !== undefined) return { id }
    const text = slug ?? name
    if (text === undefined) throw badRequest(`${path}.${index}: an id or a name is required`)
    return { text, create }
  })
}
