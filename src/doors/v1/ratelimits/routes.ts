import { createNamespace } from '../../../api/ratelimits/create-namespace.ts'
import { deleteNamespace } from '../../../api/ratelimits/delete-namespace.ts'
import { deleteOverride } from '../../../api/ratelimits/delete-override.ts'
import { getOverride } from '../../../api/ratelimits/get-override.ts'
import { getWindows } from '../../../api/ratelimits/get-windows.ts'
import { listNamespaces } from '../../../api/ratelimits/list-namespaces.ts'
import { listNearLimit } from '../../../api/ratelimits/list-near-limit.ts'
import { listOverrides } from '../../../api/ratelimits/list-overrides.ts'
import { setOverride } from '../../../api/ratelimits/set-override.ts'
import { updateNamespace } from '../../../api/ratelimits/update-namespace.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply, pageOf } from '../page.ts'
import { limitEndpoint, multiLimitEndpoint } from './limit.ts'
import { readNamespaceName } from './namespace-name.ts'
import {
  CreateNamespaceBody,
  CreateNamespaceReply,
  DeleteNamespaceBody,
  DeleteOverrideBody,
  GetOverrideQuery,
  GetOverrideReply,
  GetWindowsQuery,
  GetWindowsReply,
  LimitBody,
  LimitReply,
  ListNamespacesQuery,
  ListNamespacesReply,
  ListNearLimitQuery,
  ListNearLimitReply,
  ListOverridesQuery,
  ListOverridesReply,
  MultiLimitBody,
  MultiLimitReply,
  SetOverrideBody,
  SetOverrideReply,
  UpdateNamespaceBody,
} from './schema.ts'

/** Schemas and rights of the rate limit endpoints. `api/ratelimits/` does the work. */
export const ratelimitRoutes: Endpoint[] = [
  post(
    '/v1/ratelimits.limit',
    {
      input: LimitBody,
      reply: LimitReply,
      summary: 'Check and consume a rate limit',
      introduced: '2024-03-16',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      isFastPath: true,
    },
    limitEndpoint,
  ),
  post(
    '/v1/ratelimits.multiLimit',
    {
      input: MultiLimitBody,
      reply: MultiLimitReply,
      summary: 'Check and consume many rate limits in one call',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      isFastPath: true,
    },
    multiLimitEndpoint,
  ),
  post(
    '/v1/ratelimits.setOverride',
    {
      input: SetOverrideBody,
      reply: SetOverrideReply,
      summary: 'Set an override',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, body) => {
      const by = readNamespaceName(body)
      const actor = await authenticate(services, call)
      const { identifier, limit, duration: durationMs, async = false } = body
      const override = { identifier, limit, durationMs, async }
      return { overrideId: await setOverride(services, actor, by, override) }
    },
  ),
  get(
    '/v1/ratelimits.getOverride',
    { input: GetOverrideQuery, reply: GetOverrideReply, summary: 'Get an override', errors: ['NOT_FOUND'] },
    async (services, call, query) => {
      const actor = await authenticate(services, call)
      const override = await getOverride(services, actor, readNamespaceName(query), query.identifier)
      const { id, identifier, limit, durationMs, async } = override
      return { id, identifier, limit, duration: durationMs, async }
    },
  ),
  get(
    '/v1/ratelimits.listOverrides',
    {
      input: ListOverridesQuery,
      reply: ListOverridesReply,
      summary: 'List overrides',
      introduced: '2024-11-25',
      errors: ['NOT_FOUND'],
    },
    async (services, call, query) => {
      const by = readNamespaceName(query)
      const actor = await authenticate(services, call)
      const { items, ...page } = await listOverrides(services, actor, by, pageOf(query))
      const overrides = items.map(({ id, identifier, limit, durationMs, async }) => ({
        id,
        identifier,
        limit,
        duration: durationMs,
        ...(async === null ? {} : { async }),
      }))
      return { overrides, ...page }
    },
  ),
  post(
    '/v1/ratelimits.deleteOverride',
    { input: DeleteOverrideBody, reply: EmptyReply, summary: 'Delete an override', errors: ['NOT_FOUND'] },
    async (services, call, body) => {
      const actor = await authenticate(services, call)
      await deleteOverride(services, actor, readNamespaceName(body), body.identifier)
      return {}
    },
  ),
  post(
    '/v1/ratelimits.createNamespace',
    {
      input: CreateNamespaceBody,
      reply: CreateNamespaceReply,
      summary: 'Create a namespace',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, body) => {
      const actor = await authenticate(services, call, anyOf('*', 'ratelimit.*.create_namespace'))
      return { namespaceId: await createNamespace(services, actor, body) }
    },
  ),
  post(
    '/v1/ratelimits.updateNamespace',
    { input: UpdateNamespaceBody, reply: EmptyReply, summary: 'Update a namespace', errors: ['NOT_FOUND'] },
    async (services, call, { namespaceId, ...settings }) => {
      const rights = anyOf('*', 'ratelimit.*.update_namespace', `ratelimit.${namespaceId}.update_namespace`)
      await updateNamespace(services, await authenticate(services, call, rights), namespaceId, settings)
      return {}
    },
  ),
  get(
    '/v1/ratelimits.listNamespaces',
    { input: ListNamespacesQuery, reply: ListNamespacesReply, summary: 'List namespaces' },
    async (services, call, query) => {
      const actor = await authenticate(services, call, anyOf('*', 'ratelimit.*.read_namespace'))
      const { items: namespaces, ...page } = await listNamespaces(services, actor, pageOf(query))
      return { namespaces, ...page }
    },
  ),
  get(
    '/v1/ratelimits.getWindows',
    {
      input: GetWindowsQuery,
      reply: GetWindowsReply,
      summary: 'Get the current windows of an identifier',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, query) => {
      const by = readNamespaceName(query)
      const actor = await authenticate(services, call)
      const { namespace, windows, override } = await getWindows(services, actor, by, query.identifier)
      return {
        namespace,
        server: services.self.nodeId,
        windows: windows.map((window) => ({
          limit: window.limit,
          duration: window.durationMs,
          used: window.used,
          remaining: Math.max(0, window.limit - window.used),
          reset: window.resetAtMs,
          askedLimit: window.askedLimit,
          askedDuration: window.askedDurationMs,
          isShared: window.isShared,
        })),
        ...(override !== null && {
          override: {
            id: override.id,
            identifier: override.identifier,
            limit: override.limit,
            duration: override.durationMs,
          },
        }),
      }
    },
  ),
  get(
    '/v1/ratelimits.listNearLimit',
    {
      input: ListNearLimitQuery,
      reply: ListNearLimitReply,
      summary: 'List identifiers near their limit',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { namespaceId = '', namespaceName = '', limit = 20 }) => {
      const by =
        namespaceId === '' && namespaceName === '' ? null : readNamespaceName({ namespaceId, namespaceName })
      const actor = await authenticate(services, call)
      const entries = await listNearLimit(services, actor, by, limit)
      return {
        server: services.self.nodeId,
        identifiers: entries.map((entry) => ({
          namespace: { id: entry.namespaceId, name: entry.namespaceName },
          identifier: entry.identifier,
          limit: entry.limit,
          duration: entry.durationMs,
          used: entry.used,
          remaining: Math.max(0, entry.limit - entry.used),
          reset: entry.resetAtMs,
          refused: entry.refused,
          time: entry.at,
        })),
      }
    },
  ),
  post(
    '/v1/ratelimits.deleteNamespace',
    { input: DeleteNamespaceBody, reply: EmptyReply, summary: 'Delete a namespace', errors: ['NOT_FOUND'] },
    async (services, call, { namespaceId }) => {
      const rights = anyOf('*', 'ratelimit.*.delete_namespace', `ratelimit.${namespaceId}.delete_namespace`)
      await deleteNamespace(services, await authenticate(services, call, rights), namespaceId)
      return {}
    },
  ),
]
