import { Type } from '@sinclair/typebox'
import { anyOf, authenticate, authenticateOperator } from '../../../api/root-keys/authorize.ts'
import { createRootKey } from '../../../api/root-keys/create-root-key.ts'
import { deleteRootKey } from '../../../api/root-keys/delete-root-key.ts'
import { listRootKeys, rootKeysLastUsed } from '../../../api/root-keys/list-root-keys.ts'
import { rerollRootKey } from '../../../api/root-keys/reroll-root-key.ts'
import { findAnyRootKeyHash } from '../../../api/root-keys/store.ts'
import { updateRootKey } from '../../../api/root-keys/update-root-key.ts'
import { type RootKeyIdentity, whoamiRootKey } from '../../../api/root-keys/whoami.ts'
import { askServers } from '../../../api/server/ask-servers.ts'
import { badRequest, notFound } from '../../../errors.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply, pageOf } from '../page.ts'
import { AskServersReply, askServersReply } from '../server-answers.ts'
import {
  AskServersBody,
  CreateRootKeyBody,
  CreateRootKeyReply,
  DeleteRootKeyBody,
  ListRootKeysQuery,
  ListRootKeysReply,
  RerollRootKeyBody,
  RerollRootKeyReply,
  UpdateRootKeyBody,
  WhoamiRootKeyReply,
} from './schema.ts'

/** Schemas and rights of the root key endpoints. `api/root-keys/` does the work. */
export const rootKeyRoutes: Endpoint[] = [
  post(
    '/v1/rootKeys.createRootKey',
    {
      input: CreateRootKeyBody,
      reply: CreateRootKeyReply,
      summary: 'Create a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { name = null, permissions, expires = null, workspaceId = null }) => {
      const isOwn = workspaceId === null
      const actor = isOwn
        ? await authenticate(services, call, anyOf('*', CREATE))
        : await authenticateOperator(services, call)
      const wanted = { name, permissions, expiresAt: expires, forWorkspaceId: workspaceId }
      const made = await createRootKey(services, actor, wanted, { right: isOwn ? CREATE : '*' })
      const { id, secret, expiresAt } = made
      return { rootKeyId: id, rootKey: secret, ...(expiresAt === null ? {} : { expires: expiresAt }) }
    },
  ),
  get(
    '/v1/rootKeys.whoami',
    {
      input: Type.Object({}),
      reply: WhoamiRootKeyReply,
      summary: 'Get the record of the root key that is sent',
      errors: ['NOT_FOUND'],
    },
    async (services, call) => whoamiReply(await whoamiRootKey(services, await authenticate(services, call))),
  ),
  get(
    '/v1/rootKeys.listRootKeys',
    { input: ListRootKeysQuery, reply: ListRootKeysReply, summary: 'List root keys' },
    async (services, call, { grantedBy = null, lastUsed: isUseWanted = false, ...query }) => {
      const actor = await authenticate(services, call, anyOf('*', 'root_key.*.read_root_key'))
      const { items, ...page } = await listRootKeys(services, actor, { grantedBy }, pageOf(query))
      const ids = items.map(({ id }) => id)
      const used = isUseWanted ? await rootKeysLastUsed(services, ids) : null
      const rootKeys = items.map(({ id, name, start, permissions, enabled, expiresAt, createdAt }) => {
        const lastUsed = used?.get(id)
        return {
          id,
          ...(name === null ? {} : { name }),
          start,
          permissions,
          enabled,
          ...(expiresAt === null ? {} : { expires: expiresAt }),
          createdAt,
          ...(lastUsed === undefined ? {} : { lastUsed }),
        }
      })
      return { rootKeys, ...page }
    },
  ),
  post(
    '/v1/rootKeys.updateRootKey',
    {
      input: UpdateRootKeyBody,
      reply: EmptyReply,
      summary: 'Update a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { rootKeyId, granted: isGrantedToo = false, ...fields }) => {
      const actor = await authenticate(services, call, anyOf('*', UPDATE))
      if (isGrantedToo && fields.enabled !== false) throw badRequest('granted: needs enabled: false')
      const { expires, ...rest } = fields
      const edit = { ...rest, ...(expires === undefined ? {} : { expiresAt: expires }) }
      const options = { right: UPDATE, isGrantedToo, fieldNames: Object.keys(fields) }
      await updateRootKey(services, actor, rootKeyId, edit, options)
      return {}
    },
  ),
  post(
    '/v1/rootKeys.rerollRootKey',
    {
      input: RerollRootKeyBody,
      reply: RerollRootKeyReply,
      summary: 'Replace a root key with a new one that is equal to it',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { rootKeyId, overlap: overlapMs }) => {
      const actor = await authenticate(services, call, anyOf('*', { and: [CREATE, UPDATE] }))
      const made = await rerollRootKey(services, actor, rootKeyId, { rights: [CREATE, UPDATE], overlapMs })
      const { id, secret, expiresAt, oldExpiresAt } = made
      return {
        rootKeyId: id,
        rootKey: secret,
        ...(expiresAt === null ? {} : { expires: expiresAt }),
        oldRootKeyExpires: oldExpiresAt,
      }
    },
  ),
  post(
    '/v1/rootKeys.deleteRootKey',
    {
      input: DeleteRootKeyBody,
      reply: EmptyReply,
      summary: 'Delete a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { rootKeyId, granted: isGrantedToo = false }) => {
      const actor = await authenticate(services, call, anyOf('*', DELETE))
      await deleteRootKey(services, actor, rootKeyId, { right: DELETE, isGrantedToo })
      return {}
    },
  ),
  post(
    '/v1/rootKeys.askServers',
    {
      input: AskServersBody,
      reply: AskServersReply,
      summary: 'Ask every server on the database what it answers about a root key, also after it was deleted',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { rootKeyId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'root_key.*.read_root_key'))
      const hash = await findAnyRootKeyHash(services.sql, actor.workspaceId, rootKeyId)
      if (hash === null) throw notFound('root key', rootKeyId)
      return askServersReply(actor, await askServers(services, actor, hash))
    },
  ),
]

/** As `rootKeys.whoami` answers. */
export const whoamiReply = ({
  id,
  name,
  workspaceId,
  workspaceName,
  permissions,
  isOperator,
  expiresAt,
}: RootKeyIdentity): WhoamiRootKeyReply => ({
  rootKeyId: id,
  ...(name === null ? {} : { name }),
  workspaceId,
  workspaceName,
  permissions: [...permissions],
  isOperator,
  ...(expiresAt === null ? {} : { expires: expiresAt }),
})

/** Checked twice: when the call arrives, and on the locked row when the change is made. */
const CREATE = 'root_key.*.create_root_key'
const UPDATE = 'root_key.*.update_root_key'
const DELETE = 'root_key.*.delete_root_key'
