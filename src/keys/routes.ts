import { type Endpoint, post } from '../http/endpoint.ts'
import { EmptyReply } from '../lib/page.ts'
import { addPermissions } from './add-permissions.ts'
import { addRoles } from './add-roles.ts'
import { createKey } from './create-key.ts'
import { removePermissions } from './remove-permissions.ts'
import { removeRoles } from './remove-roles.ts'
import {
  AttachPermissionsBody,
  AttachRolesBody,
  CreateKeyBody,
  CreateKeyReply,
  LinkedReply,
  RemovePermissionsBody,
  RemoveRolesBody,
  VerifyKeyBody,
  VerifyKeyReply,
} from './schema.ts'
import { setPermissions } from './set-permissions.ts'
import { setRoles } from './set-roles.ts'
import { verifyKey } from './verify-key.ts'

export const keyRoutes: Endpoint[] = [
  post(
    '/v1/keys.createKey',
    { input: CreateKeyBody, reply: CreateKeyReply, summary: 'Create a key' },
    createKey,
  ),
  post(
    '/v1/keys.verifyKey',
    { input: VerifyKeyBody, reply: VerifyKeyReply, summary: 'Verify a key', access: 'public' },
    verifyKey,
  ),
  post(
    '/v1/keys.addPermissions',
    { input: AttachPermissionsBody, reply: LinkedReply, summary: 'Attach permissions to a key' },
    addPermissions,
  ),
  post(
    '/v1/keys.setPermissions',
    { input: AttachPermissionsBody, reply: LinkedReply, summary: 'Replace the permissions of a key' },
    setPermissions,
  ),
  post(
    '/v1/keys.removePermissions',
    { input: RemovePermissionsBody, reply: EmptyReply, summary: 'Detach permissions from a key' },
    removePermissions,
  ),
  post(
    '/v1/keys.addRoles',
    { input: AttachRolesBody, reply: LinkedReply, summary: 'Attach roles to a key' },
    addRoles,
  ),
  post(
    '/v1/keys.setRoles',
    { input: AttachRolesBody, reply: LinkedReply, summary: 'Replace the roles of a key' },
    setRoles,
  ),
  post(
    '/v1/keys.removeRoles',
    { input: RemoveRolesBody, reply: EmptyReply, summary: 'Detach roles from a key' },
    removeRoles,
  ),
]
