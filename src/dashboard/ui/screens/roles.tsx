import { useState } from 'preact/hooks'
import type {
  GetPermissionReply,
  GetRoleReply,
  PermissionReply,
  SearchPermissionsReply,
} from '../../../doors/v1/permissions/schema.ts'
import { useData } from '../data.ts'
import { counted } from '../format.ts'
import { useShortcuts } from '../keyboard.ts'
import { Breakable } from '../parts/breakable.tsx'
import { CallText } from '../parts/call.tsx'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { Confirm, FormDialog } from '../parts/dialog.tsx'
import { QueryField } from '../parts/form.tsx'
import { Missing } from '../parts/missing.tsx'
import { Panel } from '../parts/panel.tsx'
import { Pager, Table } from '../parts/table.tsx'
import { useTitle } from '../parts/title.tsx'
import { go, place } from '../route.ts'
import { ask, lacking, within, workspaceId } from '../session.ts'
import { AuditOf } from './audit.tsx'
import { Act, KeysThatHold } from './keys-that-hold.tsx'

/** Counts end there. */
const upTo100 = (count: number) => (count === 100 ? '100 or more' : String(count))

/** Both are lists of one screen in two addresses. */
function Kinds({ current }: { current: 'roles' | 'permissions' }) {
  return (
    <nav class="kinds" aria-label="Roles and permissions">
      <a href={within('roles')} aria-current={current === 'roles' ? 'page' : undefined}>
        Roles
      </a>
      <a href={within('permissions')} aria-current={current === 'permissions' ? 'page' : undefined}>
        Permissions
      </a>
    </nav>
  )
}

/** Roles, and what each gives to how many keys. */
export function Roles() {
  const heading = useTitle('Roles')
  const [isMaking, setMaking] = useState(false)
  const { query } = place.value
  const search = query.get('search') ?? ''
  const loaded = useData(`roles ${workspaceId.value} ${search} ${query.get('after')}`, (options) =>
    ask('permissions.searchRoles', { search, limit: 50, cursor: query.get('after') }, options),
  )
  const missing = lacking('rbac.*.create_role')
  useShortcuts({ c: () => missing === null && setMaking(true) })
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setMaking(true)}>
          Create role
        </Button>
      </div>
      <Kinds current="roles" />
      <div class="filters">
        <QueryField name="search" label="Search" placeholder="name, id or description" />
      </div>
      <Panel title="All roles" loaded={loaded}>
        {({ roles, cursor }) => (
          <>
            {roles.length === 0 ? (
              <>
                <p class="empty">
                  {search === ''
                    ? 'There is no role yet. A role bundles permissions; keys get it as a whole.'
                    : `“${search}” occurs in no role.`}
                </p>
                <Pager cursor={cursor} />
              </>
            ) : (
              <Table<GetRoleReply>
                label="Roles"
                file="roles.csv"
                pager={<Pager cursor={cursor} />}
                rows={roles}
                keyOf={({ id }) => id}
                columns={[
                  {
                    name: 'Role',
                    cell: ({ id, name }) => <a href={within(`roles/${id}`)}>{name}</a>,
                    text: ({ name }) => name,
                  },
                  {
                    name: 'Permissions',
                    cell: ({ permissions }) => <Slugs permissions={permissions} />,
                    text: ({ permissions }) => permissions.map(({ slug }) => slug).join(' '),
                  },
                  {
                    name: 'Keys',
                    isNumber: true,
                    cell: ({ keys }) => upTo100(keys),
                    text: ({ keys }) => upTo100(keys),
                  },
                  {
                    name: 'Description',
                    isMinor: true,
                    cell: ({ description }) => description,
                    text: ({ description }) => description ?? '',
                  },
                ]}
              />
            )}
          </>
        )}
      </Panel>
      {isMaking && <RoleForm onClose={() => setMaking(false)} onDone={(id) => go(within(`roles/${id}`))} />}
    </>
  )
}

const SLUGS_SHOWN = 3

function Slugs({ permissions }: { permissions: readonly PermissionReply[] }) {
  if (permissions.length === 0) return <span class="secondary">none</span>
  const shown = permissions.slice(0, SLUGS_SHOWN).map(({ slug }) => slug)
  const others = permissions.length - shown.length
  return (
    <span class="slugs">
      <code>
        <Breakable text={shown.join(', ')} />
      </code>
      {others > 0 && ` and ${others} more`}
    </span>
  )
}

function RoleForm({ onClose, onDone }: { onClose: () => void; onDone: (id: string) => void }) {
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const input = { name: name.trim(), ...(description.trim() !== '' && { description: description.trim() }) }
  return (
    <FormDialog
      title="Create role"
      button="Create"
      run={async () => onDone((await ask('permissions.createRole', input)).roleId)}
      onClose={onClose}
    >
      <Field
        label="Name"
        hint="3 to 256 characters, unique in the workspace."
        value={name}
        onInput={setName}
        required
        maxLength={256}
      />
      <Field label="Description" value={description} onInput={setDescription} maxLength={256} />
      <CallText isFolded method="permissions.createRole" input={input} />
    </FormDialog>
  )
}

/** One role: its permissions and its keys. */
export function Role({ id }: { id: string }) {
  const loaded = useData(`role ${workspaceId.value} ${id}`, (options) =>
    ask('permissions.getRole', { roleId: id }, options),
  )
  const { data } = loaded
  const heading = useTitle(data?.name ?? 'Role')
  const [isDeleting, setDeleting] = useState(false)
  if (data === null && loaded.failed?.code === 'NOT_FOUND')
    return (
      <>
        <div class="head">{heading}</div>
        <Missing kind="role" id={id}>
          <a href={within('roles')}>All roles</a>
        </Missing>
        <AuditOf resourceId={id} />
      </>
    )
  return (
    <>
      <p class="crumbs">
        <a href={within('roles')}>Roles</a>
      </p>
      <div class="head">
        {heading}
        {data !== null && (
          <Button
            kind="danger"
            icon="trash"
            lacking={lacking('rbac.*.delete_role')}
            onClick={() => setDeleting(true)}
          >
            Delete…
          </Button>
        )}
      </div>
      {data?.description !== undefined && <p class="secondary">{data.description}</p>}
      <div class="panels">
        <Panel title="Permissions of the role" loaded={loaded} isWide>
          {(role) => <RolePermissions role={role} onChanged={loaded.reload} />}
        </Panel>
        <KeysThatHold
          title="Keys with the role"
          held={{ roleId: id }}
          empty="No key has the role."
          linking={{
            add: (keyId) => ask('keys.addRoles', { keyId, roles: [{ id }] }),
            remove: (keyId) => ask('keys.removeRoles', { keyId, roles: [{ id }] }),
            addRight: 'rbac.*.add_role_to_key',
            removeRight: 'rbac.*.remove_role_from_key',
          }}
        />
        <AuditOf resourceId={id} />
      </div>
      {isDeleting && data !== null && (
        <Confirm
          title="Delete this role?"
          button="Delete role"
          typed={data.keys === 0 ? null : data.name}
          run={async () => {
            await ask('permissions.deleteRole', { roleId: id })
            go(within('roles'))
          }}
          onClose={() => setDeleting(false)}
        >
          <p>
            {data.keys === 0
              ? 'No key has it.'
              : `${data.keys === 100 ? '100 or more keys' : counted(data.keys, 'key')} lose what only this role gives them, with their next verification.`}
          </p>
        </Confirm>
      )}
    </>
  )
}

function RolePermissions({ role, onChanged }: { role: GetRoleReply; onChanged: () => void }) {
  const [slug, setSlug] = useState('')
  const set = (permissions: readonly { id: string }[], more: readonly object[] = []) =>
    ask('permissions.setRolePermissions', {
      roleId: role.id,
      permissions: [...permissions.map(({ id }) => ({ id })), ...more],
    })
  const { start, isBusy, failed } = useAction(async () => {
    await set(role.permissions, [{ slug: slug.trim(), create: true }])
    setSlug('')
    onChanged()
  })
  const removing = lacking('rbac.*.add_permission_to_role') ?? lacking('rbac.*.remove_permission_from_role')
  return (
    <>
      {role.permissions.length === 0 ? (
        <p class="empty">The role gives nothing yet.</p>
      ) : (
        <ul class="rows">
          {role.permissions.map((permission) => (
            <li key={permission.id}>
              <span class="what">
                <a href={within(`permissions/${permission.id}`)}>
                  <code>{permission.slug}</code>
                </a>
                {permission.description !== undefined && (
                  <span class="secondary">{permission.description}</span>
                )}
              </span>
              <Act
                name={`Remove`}
                lacking={removing}
                run={() => set(role.permissions.filter(({ id }) => id !== permission.id))}
                onDone={onChanged}
              />
            </li>
          ))}
        </ul>
      )}
      <form
        class="line apart"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        <Field
          label="Add a permission"
          hint="Its slug. A permission that does not exist is created."
          value={slug}
          onInput={setSlug}
          placeholder="documents.read"
          isMono
          required
          maxLength={256}
        />
        <Button type="submit" isBusy={isBusy} lacking={lacking('rbac.*.add_permission_to_role')}>
          Add
        </Button>
        {failed !== null && <Failure failed={failed} />}
      </form>
    </>
  )
}

/** Permissions, and how many roles and keys have each. */
export function Permissions() {
  const heading = useTitle('Permissions')
  const [isMaking, setMaking] = useState(false)
  const { query } = place.value
  const search = query.get('search') ?? ''
  const loaded = useData(`permissions ${workspaceId.value} ${search} ${query.get('after')}`, (options) =>
    ask('permissions.searchPermissions', { search, limit: 50, cursor: query.get('after') }, options),
  )
  const missing = lacking('rbac.*.create_permission')
  useShortcuts({ c: () => missing === null && setMaking(true) })
  return (
    <>
      <div class="head">
        {heading}
        <Button kind="main" icon="plus" lacking={missing} onClick={() => setMaking(true)}>
          Create permission
        </Button>
      </div>
      <Kinds current="permissions" />
      <div class="filters">
        <QueryField name="search" label="Search" placeholder="slug, name or description" />
      </div>
      <Panel title="All permissions" loaded={loaded}>
        {({ permissions, cursor }) => (
          <>
            {permissions.length === 0 ? (
              <>
                <p class="empty">
                  {search === ''
                    ? 'There is no permission yet. Verifications ask for permissions by their slugs.'
                    : `“${search}” occurs in no permission.`}
                </p>
                <Pager cursor={cursor} />
              </>
            ) : (
              <Table<SearchPermissionsReply['permissions'][number]>
                label="Permissions"
                file="permissions.csv"
                pager={<Pager cursor={cursor} />}
                rows={permissions}
                keyOf={({ id }) => id}
                columns={[
                  {
                    name: 'Permission',
                    cell: ({ id, slug }) => (
                      <a href={within(`permissions/${id}`)}>
                        <code>{slug}</code>
                      </a>
                    ),
                    text: ({ slug }) => slug,
                  },
                  {
                    name: 'Roles',
                    isNumber: true,
                    cell: ({ roles }) => upTo100(roles),
                    text: ({ roles }) => upTo100(roles),
                  },
                  {
                    name: 'Keys of their own',
                    isNumber: true,
                    cell: ({ keys }) => upTo100(keys),
                    text: ({ keys }) => upTo100(keys),
                  },
                  { name: 'Name', isMinor: true, cell: ({ name }) => name },
                  {
                    name: 'Description',
                    isMinor: true,
                    cell: ({ description }) => description,
                    text: ({ description }) => description ?? '',
                  },
                ]}
              />
            )}
          </>
        )}
      </Panel>
      {isMaking && (
        <PermissionForm onClose={() => setMaking(false)} onDone={(id) => go(within(`permissions/${id}`))} />
      )}
    </>
  )
}

function PermissionForm({ onClose, onDone }: { onClose: () => void; onDone: (id: string) => void }) {
  const [slug, setSlug] = useState('')
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const input = {
    name: name.trim() === '' ? slug.trim() : name.trim(),
    slug: slug.trim(),
    ...(description.trim() !== '' && { description: description.trim() }),
  }
  return (
    <FormDialog
      title="Create permission"
      button="Create"
      run={async () => onDone((await ask('permissions.createPermission', input)).permissionId)}
      onClose={onClose}
    >
      <Field
        label="Slug"
        hint="What verifications ask for: letters, digits and _ . : - , unique in the workspace."
        value={slug}
        onInput={setSlug}
        placeholder="documents.read"
        isMono
        required
        maxLength={256}
      />
      <Field
        label="Name"
        hint="For people. Default: the slug."
        value={name}
        onInput={setName}
        maxLength={256}
      />
      <Field label="Description" value={description} onInput={setDescription} maxLength={256} />
      <CallText isFolded method="permissions.createPermission" input={input} />
    </FormDialog>
  )
}

/** One permission: the roles and the keys that have it. */
export function Permission({ id }: { id: string }) {
  const loaded = useData(`permission ${workspaceId.value} ${id}`, (options) =>
    ask('permissions.getPermission', { permissionId: id }, options),
  )
  const { data } = loaded
  const heading = useTitle(data?.slug ?? 'Permission')
  const [isDeleting, setDeleting] = useState(false)
  if (data === null && loaded.failed?.code === 'NOT_FOUND')
    return (
      <>
        <div class="head">{heading}</div>
        <Missing kind="permission" id={id}>
          <a href={within('permissions')}>All permissions</a>
        </Missing>
        <AuditOf resourceId={id} />
      </>
    )
  return (
    <>
      <p class="crumbs">
        <a href={within('permissions')}>Permissions</a>
      </p>
      <div class="head">
        {heading}
        {data !== null && (
          <Button
            kind="danger"
            icon="trash"
            lacking={lacking('rbac.*.delete_permission')}
            onClick={() => setDeleting(true)}
          >
            Delete…
          </Button>
        )}
      </div>
      {data !== null && (data.name !== data.slug || data.description !== undefined) && (
        <p class="secondary">
          {data.name !== data.slug && data.name} {data.description}
        </p>
      )}
      <div class="panels">
        <Panel title="Roles that give it" loaded={loaded} isWide>
          {({ roles }) =>
            roles.length === 0 ? (
              <p class="empty">No role gives it. Add it on the page of a role.</p>
            ) : (
              <ul class="rows">
                {roles.map((role) => (
                  <li key={role.id}>
                    <span class="what">
                      <a href={within(`roles/${role.id}`)}>{role.name}</a>
                    </span>
                  </li>
                ))}
              </ul>
            )
          }
        </Panel>
        <KeysThatHold
          title="Keys that have it of their own"
          held={{ permissionId: id }}
          empty="No key has it of its own; keys may have it through a role."
          linking={{
            add: (keyId) => ask('keys.addPermissions', { keyId, permissions: [{ id }] }),
            remove: (keyId) => ask('keys.removePermissions', { keyId, permissions: [{ id }] }),
            addRight: 'rbac.*.add_permission_to_key',
            removeRight: 'rbac.*.remove_permission_from_key',
          }}
        />
        <AuditOf resourceId={id} />
      </div>
      {isDeleting && data !== null && (
        <DeletePermission permission={data} onClose={() => setDeleting(false)} />
      )}
    </>
  )
}

function DeletePermission({ permission, onClose }: { permission: GetPermissionReply; onClose: () => void }) {
  const isUsed = permission.keys > 0 || permission.roles.length > 0
  return (
    <Confirm
      title="Delete this permission?"
      button="Delete permission"
      typed={isUsed ? permission.slug : null}
      run={async () => {
        await ask('permissions.deletePermission', { permissionId: permission.id })
        go(within('permissions'))
      }}
      onClose={onClose}
    >
      <p>
        {isUsed
          ? `${upTo100(permission.roles.length)} roles give it and ${upTo100(permission.keys)} keys have it of their own. Verifications that ask for it are refused from the next one on.`
          : 'No role gives it, and no key has it.'}
      </p>
    </Confirm>
  )
}
