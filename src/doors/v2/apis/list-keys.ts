import { type Static, Type } from '@sinclair/typebox'
import { getApi, requireKeyspace } from '../../../api/apis/get-api.ts'
import { listKeysWithLimits } from '../../../api/apis/list-keys.ts'
import { authenticate, holdsOn } from '../../../api/root-keys/authorize.ts'
import { notFound } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { list } from '../endpoint.ts'
import { plaintextsOf, requireDecryption } from '../keys/decryption.ts'
import { keyObject } from '../keys/key-object.ts'
import { KeyObject } from '../keys/schema.ts'
import { Listed, PageFields, pageOf } from '../page.ts'
import { Closed } from '../schema.ts'

const ListKeysBody = Closed({
  apiId: Type.String({ minLength: 1, maxLength: 255, description: 'Id of the API.' }),
  ...PageFields,
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1024,
      description: 'Only keys of the identity with this external id.',
    }),
  ),
  decrypt: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also show the keys themselves, where they are recoverable.',
    }),
  ),
  revalidateKeysCache: Type.Optional(
    Type.Boolean({ default: false, description: 'Without effect: a change is seen by the next call.' }),
  ),
})

/** Without the rights to read the API and its keys, the API is not found. */
export const listKeysEndpoint = list(
  '/v2/apis.listKeys',
  {
    input: ListKeysBody,
    item: KeyObject,
    summary: 'List the keys of an API',
    errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
  },
  listKeys,
)

async function listKeys(
  services: DoorServices,
  call: HttpCall,
  { apiId, externalId, decrypt = false, ...body }: Static<typeof ListKeysBody>,
): Promise<Listed<KeyObject>> {
  const actor = await authenticate(services, call)
  const found = await getApi(services, actor, apiId)
  for (const action of ['read_key', 'read_api'])
    if (!holdsOn(actor, { resource: 'api', action }, apiId)) throw notFound('api', apiId)
  if (decrypt) requireDecryption(services, actor, found)
  const wanted = externalId === undefined ? null : { externalId }
  const page = await listKeysWithLimits(services, actor, requireKeyspace(found), wanted, pageOf(body))
  const plaintexts = decrypt ? await plaintextsOf(services, actor, apiId, page.items) : null
  return new Listed(
    page.items.map((row) => keyObject(row, plaintexts?.get(row.id))),
    page,
  )
}
