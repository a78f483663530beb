import type { AuditResource } from '../audit/log.ts'
import type { AuditRow, ErasedKind } from './store.ts'

/** Erased names, with their pseudonyms. */
export type Erased = ReadonlyMap<string, { kind: ErasedKind; pseudonym: string }>

/** Fields of an audit event that hold the customer's name of a person. */
const EXTERNAL_FIELDS = ['externalId', 'ownerId', 'identifier']

/**
 * Patterns, for the index, of the resources that contain one of the names. Events of rate limit decisions contain whatever
 * a caller of ratelimits.limit sent, so there names are also searched as id and name of a resource. In other events that
 * would also match a role or an API with the same name.
 */
export function patternsOf(names: Erased): { patterns: string[]; decisionPatterns: string[] } {
  const patterns: string[] = []
  const decisionPatterns: string[] = []
  const add = (list: string[], resource: object) => list.push(JSON.stringify([resource]))
  for (const [name, { kind }] of names) {
    if (kind === 'external') {
      for (const field of EXTERNAL_FIELDS)
        for (const part of ['meta', 'before', 'after']) add(patterns, { [part]: { [field]: name } })
      add(decisionPatterns, { id: name })
      add(decisionPatterns, { name })
    } else {
      add(patterns, { id: name })
      // Callers may use ids of this server as identifiers.
      add(patterns, { meta: { identifier: name } })
      if (kind === 'identity')
        for (const part of ['before', 'after']) add(patterns, { [part]: { identityId: name } })
    }
  }
  return { patterns, decisionPatterns }
}

/**
 * The event with pseudonyms instead of names, and without descriptions of the erased things.
 * @returns also `identityIds`: earlier, deleted identities with an erased external id; and `deletedKey`: the person's key
 *   whose deletion the event records, as no other data names it any more.
 */
export function withoutNames(
  { event, resources, description }: Pick<AuditRow, 'event' | 'resources' | 'description'>,
  names: Erased,
): {
  resources: AuditResource[]
  description: string
  identityIds: string[]
  deletedKey: { id: string; apiId: string | null } | null
} {
  const isDecision = event === 'ratelimit.success' || event === 'ratelimit.denied'
  const identityIds = resources.flatMap(({ type, id, meta }) =>
    type === 'identity' && erasedOf(meta?.externalId, names)?.kind === 'external' && !names.has(id)
      ? [id]
      : [],
  )
  const isOfPerson =
    isDecision && resources.some(({ meta }) => erasedOf(meta?.identifier, names) !== undefined)
  const changed = resources.map((resource): AuditResource => {
    const { type, id } = resource
    const erased = names.get(id)
    if (erased !== undefined && (isDecision || erased.kind !== 'external'))
      return { type, id: erased.pseudonym }
    if (isOfPerson && type !== 'ratelimitNamespace') return { type, id }
    if (isDecision) return renamedEverywhere(resource, names)
    return renamedFields(resource, names)
  })
  return {
    resources: changed,
    description: renamedWords(description, names),
    identityIds,
    deletedKey: event === 'key.delete' ? deletedKeyOf(resources, names) : null,
  }
}

/** The deleted key of an event, if the person was its owner. `deletedKeyResources` wrote the event's resources. */
function deletedKeyOf(resources: readonly AuditResource[], names: Erased) {
  const key = resources.find(({ type }) => type === 'key')
  // A key that was erased earlier keeps its pseudonym.
  if (key === undefined || names.has(key.id) || key.id.startsWith('erased_')) return null
  const isOfPerson =
    erasedOf(key.before?.ownerId, names)?.kind === 'external' ||
    resources.some(({ type, id }) => type === 'identity' && names.get(id)?.kind === 'identity')
  if (!isOfPerson) return null
  return { id: key.id, apiId: resources.find(({ type }) => type === 'api')?.id ?? null }
}

const erasedOf = (value: unknown, names: Erased) => (typeof value === 'string' ? names.get(value) : undefined)

/** Replaces names only in fields that hold names. A state of the person's own things loses all free text. */
function renamedFields(resource: AuditResource, names: Erased): AuditResource {
  const changed: AuditResource = { ...resource }
  for (const part of ['meta', 'before', 'after'] as const) {
    const fields = resource[part]
    if (fields === undefined) continue
    const renamed = Object.entries(fields).map(([field, value]): [string, unknown] => {
      const isName = field === 'identityId' || EXTERNAL_FIELDS.includes(field)
      return [field, isName ? (erasedOf(value, names)?.pseudonym ?? value) : value]
    })
    const isOfPerson = renamed.some(([field, value]) => value !== fields[field])
    changed[part] = Object.fromEntries(
      renamed.filter(([field]) => !isOfPerson || (field !== 'name' && field !== 'meta')),
    )
  }
  return changed
}

function renamedEverywhere<T>(value: T, names: Erased): T
function renamedEverywhere(value: unknown, names: Erased): unknown {
  if (typeof value === 'string') return names.get(value)?.pseudonym ?? value
  if (Array.isArray(value)) return value.map((element) => renamedEverywhere(element, names))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([field, inner]) => [
      field,
      field === 'type' ? inner : renamedEverywhere(inner, names),
    ]),
  )
}

/** Sentences contain only ids of this server. */
const renamedWords = (text: string, names: Erased) =>
  text.replace(/\w+/g, (word) => {
    const erased = names.get(word)
    return erased === undefined || erased.kind === 'external' ? word : erased.pseudonym
  })
