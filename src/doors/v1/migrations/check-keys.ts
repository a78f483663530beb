import { TypeCompiler } from '@sinclair/typebox/compiler'
import { type CheckedKey, checkKeys } from '../../../api/migrations/check-keys.ts'
import type { KeyToImport } from '../../../api/migrations/imports.ts'
import { anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import { ApiError } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { knownFieldsOf } from '../../http/known-fields.ts'
import { validationMessage } from '../validation-message.ts'
import { readImport, requireFewLinks } from './read-import.ts'
import { type CheckKeysBody, type CheckKeysReply, type CreateKeysBody, ImportedElement } from './schema.ts'

/**
 * Checks keys as `createKeys` would, each by itself: one that breaks the schema does not hide the others. The right for each
 * API comes first.
 */
export async function checkKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keys }: CheckKeysBody,
): Promise<CheckKeysReply> {
  const actor = await authenticate(services, call)
  const apiIds = new Set(keys.flatMap(({ apiId }) => (typeof apiId === 'string' ? [apiId] : [])))
  for (const apiId of apiIds.size === 0 ? ['*'] : apiIds)
    requirePermission(actor, anyOf('*', 'api.*.create_key', `api.${apiId}.create_key`))
  const read = keys.map(readAlone)
  requireFewLinks(
    read.flatMap((each) => ('key' in each ? [each.key] : [])),
    'keys',
  )
  const checked = await checkKeys(
    services,
    actor,
    read.filter((each) => 'key' in each),
  )
  const next = checked.values()
  return {
    keys: read.map((each): CheckedKey => {
      if ('reason' in each) return { outcome: 'refused', reason: each.reason }
      return next.next().value as CheckedKey // one for each key that could be read
    }),
  }
}

type Element = CreateKeysBody[number]
const checker = TypeCompiler.Compile(ImportedElement)
const known = knownFieldsOf(ImportedElement)

/** One element, with the messages of `createKeys` without its place in the call. */
function readAlone(given: unknown): { apiId: string; key: KeyToImport } | { reason: string } {
  if (!checker.Check(given))
    return { reason: validationMessage(ImportedElement, checker.Errors(given)).replace(/^: /, '') }
  const element = known(given) as Element // checked
  try {
    return { apiId: element.apiId, key: readImport(element, PLACE) }
  } catch (cause) {
    if (!(cause instanceof ApiError) || cause.code !== 'BAD_REQUEST') throw cause
    return { reason: cause.message.replace(new RegExp(`^${PLACE}(\\.|: )`), '') }
  }
}
const PLACE = 'key'
