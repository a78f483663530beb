import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Locator, Page } from 'playwright-core'
import { CHROMIUM, looksAt, violationsOf } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { giveUpImports } from '../../support/imports.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { type Json, OPERATOR_KEY, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Identities, roles, root keys, audit and workspaces in a real browser: done in the page, proven by the API, found in audit. */

setDefaultTimeout(2 * SLOW_MS)

/** Details of what the others go through by day. */
const atNight = test.if(IS_NIGHTLY)

let server: TestServer
let dashboard: DashboardPage
let page: Page
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM !== null) ({ server, dashboard, page, stop } = await startDashboard())
})
afterAll(() => stop?.())

const open = (workspace: TestWorkspace, screen: string, rootKey?: string) =>
  dashboard.open(workspace, screen, rootKey)
const visit = (workspace: TestWorkspace, screen: string) => dashboard.visit(workspace, screen)
const click = (name: string | RegExp, within: Page | Locator = page) =>
  within.getByRole('button', { name, exact: true }).first().click()
const dialog = () => dashboard.dialog()
const fill = (label: string, text: string) => dialog().getByLabel(label, { exact: true }).fill(text)
/** Presses the button of the open dialog and waits until the dialog has done it. */
async function finish(name: string): Promise<void> {
  await click(name, dialog())
  await dialog().getByRole('heading', { level: 2 }).first().waitFor({ state: 'detached' })
}
const heading = (name: string | RegExp) => dashboard.heading(name).waitFor()
const idInPath = () => new URL(page.url()).pathname.split('/').at(-1) ?? ''
const events = async (workspace: TestWorkspace, resourceId: string): Promise<string[]> =>
  (await workspace.get('audit.listEvents', { resourceId })).events.map(({ event }: Json) => event)
const statusOf = async (method: string, query: object, { rootKey }: TestWorkspace) =>
  (await server.get(method, { ...query }, rootKey)).status
const row = (text: string) => page.getByRole('row').filter({ hasText: text })
/** Until it is true: what the page has shown, the server has done; what is cached elsewhere may need a moment. */
const until = async (isTrue: () => Promise<boolean>) => {
  while (!(await isTrue())) await Bun.sleep(10)
}

describe.skipIf(CHROMIUM === null)('in a browser', () => {
  test('an identity is made, changed and deleted, and its keys of all APIs are listed', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'identities')
    await page.getByText('There is no identity yet.').waitFor()
    await click('Create identity')
    await fill('External id', 'user_881')
    await click('Add limit', dialog())
    await fill('Limit', '7')
    await fill('Meta', '{"plan": ')
    expect(await dialog().locator('.hint.bad').count()).toBe(1)
    await fill('Meta', '{"plan": "<b>pro</b>"}')
    await finish('Create')
    await heading('user_881')
    const identityId = idInPath()
    const shown = { id: identityId, externalId: 'user_881', meta: { plan: '<b>pro</b>' } }
    const limit = { name: 'requests', limit: 7, duration: 60_000 }
    expect(await workspace.get('identities.getIdentity', { identityId })).toEqual({
      ...shown,
      ratelimits: [limit],
    })
    await page.getByText('"<b>pro</b>"').waitFor()

    const apis = [await makeApi(workspace), await makeApi(workspace)]
    for (const [index, apiId] of apis.entries())
      await makeKey(workspace, apiId, { name: `key ${index}`, externalId: 'user_881' })
    await page.reload()
    for (const [index, apiId] of apis.entries()) await row(`key ${index}`).getByText(apiId).waitFor()

    await click('Edit')
    await fill('Seconds', '3600')
    await fill('Meta', '')
    await finish('Save')
    await page.getByRole('region', { name: 'Shared limits now' }).getByText('0 of 7').waitFor()
    // The counters that all its keys take from, seconds after a call.
    const { key } = await makeKey(workspace, apis[0] ?? '', { externalId: 'user_881' })
    await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost: 3 }] })
    await page.getByRole('region', { name: 'Shared limits now' }).getByText('3 of 7').waitFor()
    expect(await workspace.get('identities.getIdentity', { identityId })).toEqual({
      ...{ ...shown, meta: {} },
      ratelimits: [{ ...limit, duration: 3_600_000 }],
    })

    await click('Delete…')
    // It has keys, so its name must be typed: until then the button does nothing.
    await dialog().getByText('3 keys').waitFor()
    await dialog()
      .getByRole('button', { name: /^Delete identity/ })
      .click({ force: true })
    expect(await statusOf('identities.getIdentity', { identityId }, workspace)).toBe(200)
    await fill('Type “user_881” to confirm', 'user_881')
    await finish('Delete identity')
    await heading('Identities')
    expect(await statusOf('identities.getIdentity', { identityId }, workspace)).toBe(404)
    expect(await events(workspace, identityId)).toEqual(
      expect.arrayContaining(['identity.create', 'identity.update', 'identity.delete']),
    )
    expect(dashboard.complaints).toEqual([])
  })

  atNight('identities are searched by the beginning of their external id, also after a reload', async () => {
    const workspace = await server.workspace()
    for (const externalId of ['user_1', 'user_2', 'tenant_1'])
      await workspace.post('identities.createIdentity', { externalId })
    await open(workspace, 'identities')
    await page.getByText('3 in all').waitFor()
    await page.getByLabel('Begins with').fill('user_')
    await page.keyboard.press('Enter')
    await page.getByText('2 in all').waitFor()
    expect(await page.getByText('tenant_1').count()).toBe(0)
    await page.reload()
    await page.getByText('2 in all').waitFor()
    expect(await page.getByLabel('Begins with').inputValue()).toBe('user_')
    await page.getByLabel('Begins with').fill('nobody')
    await page.getByText('No external id begins with “nobody”').waitFor()
  })

  test('a role gives a key its permissions, and takes them away', async () => {
    const workspace = await server.workspace()
    const { keyId, key } = await makeKey(workspace, await makeApi(workspace), { name: 'web' })
    const mayRead = async () =>
      (await server.post('keys.verifyKey', { key, authorization: { permissions: 'documents.read' } })).body
        .valid
    await open(workspace, 'roles')
    await click('Create role')
    await fill('Name', 'editor')
    await finish('Create')
    await heading('editor')
    const roleId = idInPath()
    await page.getByLabel('Add a permission').fill('documents.read')
    await click('Add')
    await page.getByRole('link', { name: 'documents.read' }).waitFor()
    expect((await workspace.get('permissions.getRole', { roleId })).permissions).toMatchObject([
      { slug: 'documents.read' },
    ])
    expect(await mayRead()).toBe(false)
    await page.getByLabel('Give it to a key').fill(keyId)
    await click('Assign')
    await row('web').waitFor()
    expect(await mayRead()).toBe(true)

    // From the permission to its roles, and back.
    await page.getByRole('link', { name: 'documents.read' }).click()
    await heading('documents.read')
    const permissionId = idInPath()
    await page.getByRole('link', { name: 'editor' }).click()
    await heading('editor')
    await click('Take away')
    await page.getByText('No key has the role.').waitFor()
    expect(await mayRead()).toBe(false)
    await click('Remove')
    await page.getByText('The role gives nothing yet.').waitFor()
    expect((await workspace.get('permissions.getRole', { roleId })).permissions).toEqual([])

    // A key may have it without a role.
    await visit(workspace, `permissions/${permissionId}`)
    await page.getByLabel('Give it to a key').fill(keyId)
    await click('Assign')
    await row('web').waitFor()
    expect(await mayRead()).toBe(true)
    await click('Take away')
    await page.getByText('No key has it of its own').waitFor()
    expect(await mayRead()).toBe(false)
    await click('Delete…')
    await finish('Delete permission')
    await heading('Permissions')
    expect(await statusOf('permissions.getPermission', { permissionId }, workspace)).toBe(404)
    await visit(workspace, `roles/${roleId}`)
    await click('Delete…')
    await finish('Delete role')
    await heading('Roles')
    expect(await statusOf('permissions.getRole', { roleId }, workspace)).toBe(404)
    expect(await events(workspace, roleId)).toEqual(
      expect.arrayContaining([
        'role.create',
        'authorization.connect_permission_and_role',
        'authorization.connect_role_and_key',
        'authorization.disconnect_role_and_key',
        'authorization.disconnect_permission_and_role',
        'role.delete',
      ]),
    )
    expect(dashboard.complaints).toEqual([])
  })

  atNight('a permission is made in the page, and found by what occurs in it', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'permissions')
    await click('Create permission')
    await fill('Slug', 'documents.write')
    await fill('Description', 'May write')
    await finish('Create')
    await heading('documents.write')
    expect(await workspace.get('permissions.listPermissions')).toMatchObject([
      { slug: 'documents.write', name: 'documents.write', description: 'May write' },
    ])
    await visit(workspace, 'permissions?search=WRITE')
    await row('documents.write').waitFor()
    await visit(workspace, 'permissions?search=nothing')
    await page.getByText('“nothing” occurs in no permission.').waitFor()
    // What the server refuses is said in the form, in its words.
    await click('Create permission')
    await fill('Slug', 'documents.write')
    await click('Create', dialog())
    await dialog().getByRole('alert').getByText('already exists').waitFor()
  })

  test('a root key is made from a template, edited, disabled, rotated and deleted', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const whoami = async (rootKey: string) => (await server.get('rootKeys.whoami', {}, rootKey)).body
    const isRefused = async (rootKey: string) => (await whoami(rootKey)).error !== undefined
    await open(workspace, 'root-keys')
    await click('Create root key')
    await fill('Name', 'checkout')
    await click('Verify and limit', dialog())
    await dialog().getByText('For these', { exact: true }).first().click()
    await dialog().getByLabel('test api').check()
    await dialog()
      .getByText(/^May call/)
      .click()
    expect(await dialog().locator('.methods').textContent()).toContain('ratelimits.limit')
    await click('Create root key', dialog())
    const made = page.getByRole('dialog', { name: 'The new root key' })
    const rootKey = (await made.locator('.secret').textContent()) ?? ''
    await click('I have it', made)
    const { rootKeyId, permissions } = await whoami(rootKey)
    expect(permissions.sort()).toEqual([
      `api.${apiId}.verify_key`,
      'ratelimit.*.create_namespace',
      'ratelimit.*.limit',
    ])

    await until(async () => {
      const { rootKeys } = await workspace.get('rootKeys.listRootKeys', { lastUsed: true })
      return rootKeys.find(({ id }: Json) => id === rootKeyId)?.lastUsed !== undefined
    })
    await page.reload()
    await row('checkout')
      .getByText(/^hour of/)
      .waitFor()
    // What it may do for single things are boxes again, not lines.
    const other = (await workspace.post('apis.createApi', { name: 'other api' })).apiId
    await click('Edit', row('checkout'))
    expect(await dialog().getByLabel('Other permissions').inputValue()).toBe('')
    expect(await dialog().getByLabel('test api').isChecked()).toBe(true)
    expect(await dialog().getByLabel('verify key', { exact: true }).isChecked()).toBe(true)
    await dialog().getByLabel('read key', { exact: true }).check()
    await dialog().getByLabel('create namespace').uncheck()
    expect(await dialog().locator('.difference').textContent()).toBe(
      `added api.${apiId}.read_keyremoved ratelimit.*.create_namespace`,
    )
    await finish('Save')
    await until(async () => (await whoami(rootKey)).permissions.includes(`api.${apiId}.read_key`))
    expect((await whoami(rootKey)).permissions).toHaveLength(3)
    expect(
      await Promise.all(
        [apiId, other].map(
          async (each) => (await server.get('keys.searchKeys', { apiId: each }, rootKey)).status,
        ),
      ),
    ).toEqual([200, 403])

    await click('Disable', row('checkout'))
    await row('checkout').getByText('Disabled').waitFor()
    expect(await whoami(rootKey)).toMatchObject({ error: { code: 'DISABLED' } })
    await click('Enable', row('checkout'))
    await row('checkout').getByText('Active').waitFor()
    expect(await isRefused(rootKey)).toBe(false)

    await click('Rotate…', row('checkout'))
    await dialog().getByLabel('The old one ends').selectOption('at once')
    await click('Rotate', dialog())
    const rotated = page.getByRole('dialog', { name: 'The root key that replaces it' })
    const next = (await rotated.locator('.secret').textContent()) ?? ''
    await click('I have it', rotated)
    expect(await whoami(rootKey)).toMatchObject({ error: { code: 'EXPIRED' } })
    const { rootKeyId: nextId } = await whoami(next)

    await row('checkout').filter({ hasText: 'Active' }).waitFor()
    await click('Delete…', row('checkout').filter({ hasText: 'Active' }))
    await fill('Type “checkout” to confirm', 'checkout')
    await finish('Delete root key')
    await row('checkout').filter({ hasText: 'Active' }).waitFor({ state: 'detached' })
    expect(await isRefused(next)).toBe(true)
    expect(await events(workspace, rootKeyId)).toEqual(
      expect.arrayContaining(['rootKey.create', 'rootKey.update', 'rootKey.reroll']),
    )
    expect(await events(workspace, nextId)).toContain('rootKey.delete')
    // The one that is signed in with can neither be disabled nor deleted here.
    expect(await row('you').getByRole('button', { name: 'Delete…' }).getAttribute('aria-disabled')).toBe(
      'true',
    )
    expect(dashboard.complaints).toEqual([])
  })

  test('audit shows the newest first, each field before and after, by filters that the address keeps, and as CSV', async () => {
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace), { name: '=SUM(A1)' })
    await workspace.post('keys.updateKey', { keyId, name: '<i>new</i>', enabled: false })
    await open(workspace, `audit?resource=${keyId}`)
    const rows = page.locator('.events summary')
    await rows.nth(1).waitFor()
    expect(await rows.locator('.event').allTextContents()).toEqual(['key.update', 'key.create'])
    expect(await rows.first().textContent()).toContain('first root key')
    await rows.first().click()
    const cells = page.locator('.changes').first().getByRole('row')
    expect(await cells.allTextContents()).toEqual([
      'FieldBeforeAfter',
      `name ${keyId}=SUM(A1)<i>new</i>`,
      `enabled ${keyId}truefalse`,
    ])
    const download = page.waitForEvent('download')
    await click('CSV')
    const csv = await Bun.file(await (await download).path()).text()
    expect(csv.split('\r\n')[0]).toBe('time,event,root key,root key id,description,changes,address,client,id')
    expect(csv).toContain('name: ""=SUM(A1)"" → ""<i>new</i>""')
    expect(csv.trim().split('\r\n')).toHaveLength(3)
    await page.getByLabel('Event', { exact: true }).fill('key.create')
    await page.keyboard.press('Enter')
    await page.waitForURL(/event=key.create/)
    await rows.nth(1).waitFor({ state: 'detached' })
    await page.reload()
    await rows.first().waitFor()
    expect(await rows.locator('.event').allTextContents()).toEqual(['key.create'])
    await page.getByLabel('Time').selectOption('7d')
    await page.waitForURL(/range=7d/)
    expect(dashboard.complaints).toEqual([])
  })

  atNight('a file of audit holds all that the filters find, and can be cancelled', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { keyId } = await makeKey(workspace, apiId)
    for (let at = 0; at < 210; at++) await workspace.post('keys.updateKey', { keyId, name: `name ${at}` })
    await makeKey(workspace, apiId)
    await open(workspace, `audit?resource=${keyId}`)
    await page.locator('.events summary').nth(49).waitFor()
    await click('Next') // the file begins at the newest all the same
    await page.waitForURL(/after=/)
    await page.locator('.events summary').nth(49).waitFor()
    const download = page.waitForEvent('download')
    await click('CSV')
    const lines = (await Bun.file(await (await download).path()).text()).trim().split('\r\n')
    expect(lines).toHaveLength(212)
    expect(lines[1]).toContain('name 209')
    expect(lines.at(-1)).toContain('key.create')
    await page.getByText('Saved 211 events.').waitFor()

    // The second page never comes.
    let pages = 0
    await page.route('**/audit.listEvents', (route) => (++pages === 1 ? route.continue() : undefined))
    let isSaved = false
    page.once('download', () => {
      isSaved = true
    })
    await click('CSV')
    await page.getByText('100 events read').waitFor()
    await click('Cancel')
    await page.getByRole('button', { name: 'CSV' }).waitFor()
    expect(await page.getByText('events read').count()).toBe(0)
    expect(isSaved).toBe(false)
    await page.unrouteAll()
    expect(dashboard.complaints).toEqual([])
  })

  test('an operator makes, renames, disables and enables a workspace, and gives it a new root key', async () => {
    const { body } = await server.get('rootKeys.whoami', {}, OPERATOR_KEY)
    const operator = { ...(await server.workspace()), workspaceId: body.workspaceId, rootKey: OPERATOR_KEY }
    await open(operator, 'workspaces')
    await click('Create workspace')
    await fill('Name', 'tenant seven')
    await click('Create', dialog())
    const made = page.getByRole('dialog', { name: 'The new root key' })
    const first = (await made.locator('.secret').textContent()) ?? ''
    await click('I have it', made)
    const whoami = async (rootKey: string) => (await server.get('rootKeys.whoami', {}, rootKey)).body
    expect(await whoami(first)).toMatchObject({ workspaceName: 'tenant seven', permissions: ['*'] })
    await click('Rename', row('tenant seven'))
    await fill('Name', 'tenant 7')
    await finish('Save')
    await click('New root key', row('tenant 7'))
    await click('Create root key', dialog())
    const second = (await made.locator('.secret').textContent()) ?? ''
    await click('I have it', made)
    expect(await whoami(second)).toMatchObject({ workspaceName: 'tenant 7', isOperator: false })
    await click('Disable…', row('tenant 7'))
    await fill('Type “tenant 7” to confirm', 'tenant 7')
    await finish('Disable workspace')
    await row('tenant 7').getByText('Disabled').waitFor()
    expect(await whoami(second)).toHaveProperty('error')
    await click('Enable', row('tenant 7'))
    await row('tenant 7').getByText('Active').waitFor()
    expect(await whoami(second)).not.toHaveProperty('error')
    expect(dashboard.complaints).toEqual([])
  })

  atNight('an operator sees the figures of the server, and others do not', async () => {
    const { body } = await server.get('rootKeys.whoami', {}, OPERATOR_KEY)
    const workspace = await server.workspace()
    const operator = { ...workspace, workspaceId: body.workspaceId, rootKey: OPERATOR_KEY }
    await open(operator, 'server')
    await row('/v1/workspaces.createWorkspace').waitFor()
    expect(await page.locator('.facts').first().textContent()).toContain('Stateready')
    await page.getByText('shard-1').waitFor()
    expect(await violationsOf(page)).toEqual([])
    await open(workspace, 'server')
    await page.getByText('Not shown: this call needs an operator root key.').first().waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  test('imports that were given up are chosen, tried again, and discarded', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'imports')
    await page.getByText('No import was given up.').waitFor()
    const texts = ['first', 'second'].map((text) => `${text}_${crypto.randomUUID()}`)
    await giveUpImports(server, workspace, texts)
    await page.reload()
    await row('first_').getByText('editor').waitFor()
    await workspace.post('permissions.createRole', { name: 'editor' })
    const [key = ''] = texts
    await page.getByRole('row').getByLabel(key).check()
    await click('Try again')
    await row('first_').waitFor({ state: 'detached' })
    await until(async () => (await server.post('keys.verifyKey', { key })).body.valid)
    await click('Choose all shown')
    await click('Discard…')
    await finish('Discard')
    await page.getByText('No import was given up.').waitFor()
    expect(await workspace.get('migrations.listImports')).toMatchObject({ failed: 0 })
    const named = await workspace.get('audit.listEvents', { order: 'newestFirst', limit: 1 })
    expect(named.events[0].event).toBe('import.discard')
    expect(dashboard.complaints).toEqual([])
  })

  atNight('what a root key may not do is off, names the right, and is refused when called', async () => {
    const workspace = await server.workspace()
    const { roleId } = await workspace.post('permissions.createRole', { name: 'editor' })
    const { permissionId } = await workspace.post('permissions.createPermission', { name: 'docs.read' })
    await workspace.post('permissions.setRolePermissions', { roleId, permissions: [{ id: permissionId }] })
    const { identityId } = await workspace.post('identities.createIdentity', { externalId: 'user_1' })
    const { keyId } = await makeKey(workspace, await makeApi(workspace), { roles: ['editor'] })
    const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { name: 'other', permissions: [] })
    const reads = ['identity', 'rbac', 'root_key', 'audit', 'api'].flatMap((resource) =>
      ['identity', 'role', 'permission', 'root_key', 'event', 'key', 'api'].map(
        (what) => `${resource}.*.read_${what}`,
      ),
    )
    await open(workspace, 'overview', await workspace.rootKeyWith(...reads))
    const [identities, roles] = [`identities/${identityId}`, `roles/${roleId}`]
    const rows: [screen: string, button: string, right: string, method: string, input: object][] = [
      [
        'identities',
        'Create identity',
        'identity.*.create_identity',
        'identities.createIdentity',
        { externalId: 'user_2' },
      ],
      [
        identities,
        'Edit',
        'identity.*.update_identity',
        'identities.updateIdentity',
        { identityId, meta: {} },
      ],
      [identities, 'Delete…', 'identity.*.delete_identity', 'identities.deleteIdentity', { identityId }],
      ['roles', 'Create role', 'rbac.*.create_role', 'permissions.createRole', { name: 'reader' }],
      [roles, 'Delete…', 'rbac.*.delete_role', 'permissions.deleteRole', { roleId }],
      [
        roles,
        'Add',
        'rbac.*.add_permission_to_role',
        'permissions.setRolePermissions',
        { roleId, permissions: [] },
      ],
      [roles, 'Assign', 'rbac.*.add_role_to_key', 'keys.addRoles', { keyId, roles: [{ id: roleId }] }],
      [
        roles,
        'Take away',
        'rbac.*.remove_role_from_key',
        'keys.removeRoles',
        { keyId, roles: [{ id: roleId }] },
      ],
      [
        'permissions',
        'Create permission',
        'rbac.*.create_permission',
        'permissions.createPermission',
        { name: 'docs.write' },
      ],
      [
        `permissions/${permissionId}`,
        'Delete…',
        'rbac.*.delete_permission',
        'permissions.deletePermission',
        { permissionId },
      ],
      [
        'root-keys',
        'Create root key',
        'root_key.*.create_root_key',
        'rootKeys.createRootKey',
        { permissions: [] },
      ],
      [
        'root-keys',
        'Edit',
        'root_key.*.update_root_key',
        'rootKeys.updateRootKey',
        { rootKeyId, name: 'new' },
      ],
      [
        'root-keys',
        'Rotate…',
        'root_key.*.update_root_key',
        'rootKeys.rerollRootKey',
        { rootKeyId, overlap: 0 },
      ],
      ['root-keys', 'Delete…', 'root_key.*.delete_root_key', 'rootKeys.deleteRootKey', { rootKeyId }],
      [
        'workspaces',
        'Create workspace',
        'an operator root key',
        'workspaces.createWorkspace',
        { name: 'new one' },
      ],
    ]
    let screen = ''
    for (const [path, name, right, method, input] of rows) {
      if (path !== screen) await visit(workspace, path)
      screen = path
      const button = page.getByRole('button', { name: new RegExp(`^${name} ?, `) }).first()
      await button.waitFor()
      expect([name, await button.getAttribute('aria-disabled')]).toEqual([name, 'true'])
      expect(await button.getAttribute('title')).toContain(`needs ${right}`)
      await button.click({ force: true })
      expect([name, await dialog().count()]).toEqual([name, 0])
      // As the page would call, had the button been on.
      const code = await page.evaluate(
        ([called, body]) =>
          fetch(`/dashboard/api/${called}`, {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', 'X-Tollgate-Dashboard': '1' },
            body: JSON.stringify(body),
          })
            .then((response) => response.json())
            .then((reply: Json) => reply.error?.code),
        [method, input] as const,
      )
      expect([method, code]).toEqual([method, 'INSUFFICIENT_PERMISSIONS'])
    }
    // It is no operator, so the rail does not lead there; it may read the other screens.
    expect(await page.locator('.frame > .rail nav a').allTextContents()).toEqual([
      ...['Overview', 'Keys', 'APIs', 'Live', 'Why refused?'],
      ...['Identities', 'Roles', 'Audit', 'Root keys', 'Documentation'],
    ])
    // A root key gives only what it holds.
    await workspace.post('rootKeys.createRootKey', { permissions: [] })
    await open(
      workspace,
      'root-keys',
      await workspace.rootKeyWith('root_key.*.create_root_key', 'root_key.*.read_root_key'),
    )
    await click('Create root key')
    expect(await dialog().getByLabel('create identity').isDisabled()).toBe(true)
    expect(await dialog().getByLabel('read root key').isEnabled()).toBe(true)
    expect(dashboard.complaints).toEqual([])
  })

  atNight('by the keyboard alone: to a screen, into its form, and back out of it', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'overview')
    await page.keyboard.press('g')
    await page.keyboard.press('i')
    await heading('Identities')
    await page.getByRole('button', { name: 'Create identity' }).waitFor()
    await page.keyboard.press('c')
    await dialog().waitFor()
    await page.keyboard.press('Escape')
    // Not by its role: a closed dialog has none, and is still there until its event came.
    await page.locator('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('c')
    await dialog().getByLabel('External id').focus()
    await page.keyboard.type('user_by_keyboard')
    await page.keyboard.press('Enter')
    await heading('user_by_keyboard')
    for (const [letter, name] of [
      ['r', 'Roles'],
      ['a', 'Audit'],
      ['t', 'Root keys'],
    ] as const) {
      await page.keyboard.press('g')
      await page.keyboard.press(letter)
      await heading(name)
    }
    expect(dashboard.complaints).toEqual([])
  })

  test('the screen of what does not exist says so once, and leads to what does', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'overview')
    for (const [path, kind, all] of [
      ['identities/id_none', 'identity', 'identities'],
      ['permissions/perm_none', 'permission', 'permissions'],
      ['limits/rlns_none', 'namespace', 'namespaces'],
      ['limits/rlns_none/=user_1', 'namespace', 'namespaces'],
    ] as const) {
      await visit(workspace, path)
      await page.getByText(`There is no ${kind} ${path.split('/')[1]} in this workspace`).waitFor()
      expect(await page.getByText(/not found|does not exist/).count()).toBe(0)
      await page.getByRole('link', { name: `All ${all}` }).click()
      await heading(all === 'namespaces' ? 'Limits' : new RegExp(all, 'i'))
    }
    expect(dashboard.complaints).toEqual([])
  })

  test.skipIf(!IS_NIGHTLY)(
    'axe finds nothing wrong on these screens, empty, filled, with a dialog and failed',
    async () => {
      const { look, wrong } = looksAt(page)
      const workspace = await server.workspace()
      await open(workspace, 'identities')
      const lists = ['identities', 'roles', 'permissions', 'root-keys', 'audit', 'imports']
      for (const screen of lists) {
        await visit(workspace, screen)
        await page.locator('.panel .empty, .panel table, .events').first().waitFor()
        await look(`${screen}, empty`)
      }
      // Before there is the role that they wait for.
      await giveUpImports(server, workspace, [`given_up_${crypto.randomUUID()}`])
      const { identityId } = await workspace.post('identities.createIdentity', {
        externalId: 'user_1',
        meta: { plan: 'pro' },
        ratelimits: [{ name: 'requests', limit: 10, duration: 1000 }],
      })
      const { roleId } = await workspace.post('permissions.createRole', { name: 'editor' })
      const permissions = [{ slug: 'docs.read', create: true }]
      const [{ id: permissionId }] = await workspace.post('permissions.setRolePermissions', {
        roleId,
        permissions,
      })
      await makeKey(workspace, await makeApi(workspace), {
        ...{ externalId: 'user_1', roles: ['editor'], permissions: ['docs.read'], name: 'web' },
      })
      const ones = [`identities/${identityId}`, `roles/${roleId}`, `permissions/${permissionId}`]
      for (const screen of [...lists, ...ones]) {
        await visit(workspace, screen)
        await page.locator('.panel table, .events').first().waitFor()
        if (screen === 'audit') await page.locator('.events summary').first().click()
        await look(`${screen}, filled`)
      }
      await visit(workspace, 'root-keys')
      await click('Create root key')
      await dialog().waitFor()
      await look('root-keys, with a dialog')
      await page.route('**/dashboard/api/**', (route) =>
        /session\./.test(route.request().url()) ? route.continue() : route.abort(),
      )
      for (const screen of [...lists, ...ones]) {
        await visit(workspace, screen)
        await page.getByText('The server does not answer.').first().waitFor()
        await look(`${screen}, failed`)
      }
      expect(wrong).toEqual([])
    },
  )
})
