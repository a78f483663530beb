import { changesOf } from '../audit/changes.ts'
import { audit } from '../audit/log.ts'
import type { Deps } from '../deps.ts'
import { ApiError, notFound } from '../errors.ts'
import type { Call } from '../http/endpoint.ts'
import { anyOf, authenticate } from './authorize.ts'
import type { DeleteRootKeyBody } from './schema.ts'
import { countOtherOperatorKeys, findRootKey, lockRootKey, softDeleteRootKey } from './store.ts'
import { fieldsOf } from './update-root-key.ts'

/** Revokes a root key of the caller's workspace for good: the very next request with it is refused. */
export async function deleteRootKey(
  deps: Deps,
  call: Call,
  { rootKeyId: id }: DeleteRootKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(deps, call, anyOf('*', 'root_key.*.delete_root_key'))
  await deps.database.write(async (tx, touch) => {
    await lockRootKey(tx, actor.workspaceId, id)
    const rootKey = await findRootKey(tx, actor.workspaceId, id)
    if (rootKey === null) throw notFound(`root key ${id}`)
    if (rootKey.isOperator && (await countOtherOperatorKeys(tx, id)) === 0)
      throw new ApiError(
        'PRECONDITION_FAILED',
        `root key ${id} is the last operator root key: without it nobody could enter`,
      )
    await softDeleteRootKey(tx, id, deps.clock())
    await audit(tx, actor, [
      {
        event: 'rootKey.delete',
        description: `deleted root key ${id}`,
        resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), null) }],
      },
    ])
    touch(id)
  })
  return {}
}
