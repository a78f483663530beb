import { createNamespace } from '../../../api/ratelimits/create-namespace.ts'
import { deleteNamespace } from '../../../api/ratelimits/delete-namespace.ts'
import { deleteOverride } from '../../../api/ratelimits/delete-override.ts'
import { getOverride } from '../../../api/ratelimits/get-override.ts'
import { listNamespaces } from '../../../api/ratelimits/list-namespaces.ts'
import { listOverrides } from '../../../api/ratelimits/list-overrides.ts'
import {
  CreateNamespaceBody,
  CreateNamespaceReply,
  DeleteNamespaceBody,
  DeleteOverrideBody,
  GetOverrideQuery,
  GetOverrideReply,
  LimitBody,
  LimitReply,
  ListNamespacesQuery,
  ListNamespacesReply,
  ListOverridesQuery,
  ListOverridesReply,
  MultiLimitBody,
  MultiLimitReply,
  SetOverrideBody,
  SetOverrideReply,
} from '../../../api/ratelimits/schema.ts'
import { setOverride } from '../../../api/ratelimits/set-override.ts'
import { EmptyReply } from '../../../lib/page.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { limitEndpoint, multiLimitEndpoint } from './limit.ts'

/** Path, schemas, verb. Nothing is decided here; what a call does is in the file named after it. */
export const ratelimitRoutes: Endpoint[] = [
  post(
    '/v1/ratelimits.limit',
    {
      input: LimitBody,
      reply: LimitReply,
      summary: 'Check and consume a rate limit',
      introduced: '2024-03-16',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      isHot: true,
    },
    limitEndpoint,
  ),
  post(
    '/v1/ratelimits.multiLimit',
    {
      input: MultiLimitBody,
      reply: MultiLimitReply,
      summary: 'Many limits in one call',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      isHot: true,
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
    setOverride,
  ),
  get(
    '/v1/ratelimits.getOverride',
    { input: GetOverrideQuery, reply: GetOverrideReply, summary: 'Get an override', errors: ['NOT_FOUND'] },
    getOverride,
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
    listOverrides,
  ),
  post(
    '/v1/ratelimits.deleteOverride',
    { input: DeleteOverrideBody, reply: EmptyReply, summary: 'Delete an override', errors: ['NOT_FOUND'] },
    deleteOverride,
  ),
  post(
    '/v1/ratelimits.createNamespace',
    {
      input: CreateNamespaceBody,
      reply: CreateNamespaceReply,
      summary: 'Create a namespace',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    createNamespace,
  ),
  get(
    '/v1/ratelimits.listNamespaces',
    { input: ListNamespacesQuery, reply: ListNamespacesReply, summary: 'List namespaces' },
    listNamespaces,
  ),
  post(
    '/v1/ratelimits.deleteNamespace',
    { input: DeleteNamespaceBody, reply: EmptyReply, summary: 'Delete a namespace', errors: ['NOT_FOUND'] },
    deleteNamespace,
  ),
]
