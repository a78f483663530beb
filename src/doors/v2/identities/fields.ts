import type { Static } from '@sinclair/typebox'
import type { WantedLimit } from '../../../api/identities/new-limits.ts'
import type { IdentityRow } from '../../../api/identities/store.ts'
import { InvalidInput } from '../../../errors.ts'
import { META_CHARACTERS_MAX, parseMeta } from '../../../lib/meta.ts'
import type { Identity, RatelimitRequest } from '../schema.ts'

/** @throws InvalidInput for a repeated name. */
export function readLimits(ratelimits: readonly Static<typeof RatelimitRequest>[]): WantedLimit[] {
  const names = new Set<string>()
  return ratelimits.map(({ name, limit, duration: durationMs, autoApply = false }) => {
    if (names.has(name)) throw new InvalidInput('ratelimits', `the name ${name} is there more than once`)
    names.add(name)
    return { name, limit, durationMs, autoApply }
  })
}

/** The JSON text to store; null when absent. @throws InvalidInput when it is too long. */
export function readMeta(meta: object | undefined): string | null {
  if (meta === undefined) return null
  const text = JSON.stringify(meta)
  if (text.length > META_CHARACTERS_MAX)
    throw new InvalidInput(
      'meta',
      `too large: ${text.length} characters of JSON, at most ${META_CHARACTERS_MAX} are allowed`,
    )
  return text
}

/** An identity in an answer, without what is empty. */
export function presentIdentity({ id, externalId, meta, limits }: IdentityRow): Static<typeof Identity> {
  const ownMeta = parseMeta(meta) ?? {}
  return {
    id,
    externalId,
    ...(Object.keys(ownMeta).length === 0 ? {} : { meta: ownMeta }),
    ...(limits.length === 0 ? {} : { ratelimits: limits.map(presentLimit) }),
  }
}

const presentLimit = ({ id, name, limit, durationMs, autoApply }: IdentityRow['limits'][number]) => ({
  id,
  name,
  limit,
  duration: durationMs,
  autoApply,
})
