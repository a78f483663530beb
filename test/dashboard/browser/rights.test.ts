import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Locator, Page } from 'playwright-core'
import type { Replies } from '../../../src/dashboard/ui/api.ts'
import { GROUPS } from '../../../src/dashboard/ui/screens/rights.ts'
import { V1_NEEDS } from '../../../src/pages/needs.ts'
import { type Fixture, makeFixture, ROWS, type Row } from '../../hostile/permission-table.ts'
import { CHROMIUM } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import type { TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { Browser } from '../support.ts'

/**
 * For every method that the dashboard calls and every right that it needs: a root key with all rights but that one. Its call
 * is refused, and the page says so before: the button is off and names the right, or the panel says what is missing.
 */

setDefaultTimeout(2 * SLOW_MS)

type Method = Exclude<keyof Replies, `session.${string}` | 'liveness'>

/** Where the dashboard shows that a method cannot be called. `{name}` in a path is a text of the fixture. */
type Shown = { at: string; prepare?: () => Promise<void> } & (
  | { button: string | RegExp }
  | { panel: string }
  /** The screen as a whole says it. */
  | { says: RegExp }
)

const KEY = 'keys/{keyId}'
const NAMESPACE = 'limits/{namespaceId}'
const IDENTIFIER = 'limits/{namespaceId}/{identifier}'
const ROLE = 'roles/{roleId}'
const PERMISSION = 'permissions/{permissionId}'
const IDENTITY = 'identities/{identityId}'

/** @returns null: nothing shows it, because a screen does without the answer. */
const SHOWN: Record<Method, Shown | null> = {
  'analytics.getOverview': { at: 'overview', panel: 'Verifications' },
  'analytics.getRatelimits': { at: 'limits', panel: 'Decisions' },
  'analytics.getVerifications': { at: KEY, panel: 'Usage by hour' },
  'apis.createApi': { at: 'apis', button: 'Create API' },
  'apis.deleteApi': { at: 'apis/{apiId}', button: 'Delete…' },
  'apis.getApi': { at: 'apis/{apiId}', panel: 'Settings' },
  'apis.listApis': { at: 'apis', panel: 'All APIs' },
  'apis.updateApi': { at: 'apis/{apiId}', button: 'Edit' },
  'audit.listEvents': { at: 'audit', panel: 'Events' },
  'events.listRecent': { at: IDENTIFIER, panel: 'Last refusals' },
  'events.listWatches': { at: 'live', panel: 'Watches' },
  'events.unwatch': { at: 'live', panel: 'Watches' },
  'events.watch': { at: IDENTIFIER, button: 'Watch for 15 min' },
  'identities.createIdentity': { at: 'identities', button: 'Create identity' },
  'identities.deleteIdentity': { at: IDENTITY, button: 'Delete…' },
  'identities.getIdentity': { at: IDENTITY, panel: 'Shared limits' },
  'identities.listIdentities': { at: 'identities', panel: 'All identities' },
  'identities.updateIdentity': { at: IDENTITY, button: 'Edit' },
  'keys.addPermissions': { at: PERMISSION, button: 'Assign' },
  'keys.addRoles': { at: ROLE, button: 'Assign' },
  'keys.askServers': null, // the page states how soon the others hear of a change
  'keys.createKey': { at: 'keys', button: 'Create key' },
  'keys.deleteKey': { at: KEY, button: 'Delete…' },
  'keys.explainKey': { at: KEY, says: /Not shown: missing permission/ },
  'keys.getKey': { at: KEY, says: /Not shown: missing permission/ },
  'keys.getLastUsed': null, // the column is empty
  'keys.listKeys': { at: ROLE, panel: 'Keys with the role' },
  'keys.removePermissions': { at: PERMISSION, button: 'Take away' },
  'keys.removeRoles': { at: ROLE, button: 'Take away' },
  'keys.rerollKey': { at: KEY, button: 'Rotate…' },
  'keys.searchKeys': { at: 'keys', panel: 'All keys' },
  'keys.updateKey': { at: KEY, button: 'Disable' },
  'keys.updateRemaining': { at: KEY, button: 'Edit' },
  'keys.whoami': { at: 'overview', says: /^missing permission/, prepare: () => searchFor(fixture.texts.key) },
  'migrations.checkKeys': { at: 'imports', button: /^Check the first/ },
  'migrations.createKeys': { at: 'imports', button: /^Import/ },
  'migrations.discardImports': { at: 'imports', panel: 'Given up' },
  'migrations.listImports': { at: 'imports', panel: 'Queue' },
  'migrations.retryImports': { at: 'imports', panel: 'Given up' },
  'permissions.createPermission': { at: 'permissions', button: 'Create permission' },
  'permissions.createRole': { at: 'roles', button: 'Create role' },
  'permissions.deletePermission': { at: PERMISSION, button: 'Delete…' },
  'permissions.deleteRole': { at: ROLE, button: 'Delete…' },
  'permissions.getPermission': { at: PERMISSION, says: /Not shown: missing permission/ },
  'permissions.getRole': { at: ROLE, says: /Not shown: missing permission/ },
  'permissions.searchPermissions': { at: 'permissions', panel: 'All permissions' },
  'permissions.searchRoles': { at: 'roles', panel: 'All roles' },
  'permissions.setRolePermissions': { at: ROLE, button: /^(Add|Remove)/ },
  'ratelimits.createNamespace': { at: 'limits', button: 'Create namespace' },
  'ratelimits.deleteNamespace': { at: NAMESPACE, button: 'Delete…' },
  'ratelimits.deleteOverride': { at: NAMESPACE, button: 'Delete' },
  'ratelimits.getWindows': { at: IDENTIFIER, panel: 'Windows now' },
  'ratelimits.listNamespaces': { at: 'limits', panel: 'Namespaces' },
  'ratelimits.listNearLimit': { at: 'limits', panel: 'Near their limit now' },
  'ratelimits.listOverrides': { at: NAMESPACE, panel: 'Overrides' },
  'ratelimits.setOverride': { at: NAMESPACE, button: 'Create override' },
  'ratelimits.updateNamespace': { at: NAMESPACE, button: 'Several servers…' },
  'rootKeys.askServers': null, // as of keys
  'rootKeys.createRootKey': { at: 'root-keys', button: 'Create root key' },
  'rootKeys.deleteRootKey': { at: 'root-keys', button: 'Delete…' },
  'rootKeys.listRootKeys': { at: 'root-keys', panel: 'All root keys' },
  'rootKeys.rerollRootKey': { at: 'root-keys', button: 'Rotate…' },
  'rootKeys.updateRootKey': { at: 'root-keys', button: 'Edit' },
  'server.getHistory': null, // beside the figures of the moment, which say it
  'server.getSettings': null, // as above
  'server.getStatus': { at: 'server', panel: 'Process' },
  'server.listServers': null, // as above
  'workspaces.createWorkspace': { at: 'workspaces', button: 'Create workspace' },
  'workspaces.listWorkspaces': { at: 'workspaces', panel: 'All workspaces' },
  'workspaces.updateWorkspace': { at: 'workspaces', panel: 'All workspaces' },
}

/** By day a few: each opens a page. */
const BY_DAY: readonly string[] = [
  'events.watch',
  'keys.updateKey',
  'ratelimits.setOverride',
  'audit.listEvents',
  'server.getStatus',
]

const EVERYTHING = GROUPS.flatMap(({ boxes }) => boxes.map(({ permission }) => permission))
const CALLED = [
  ...readFileSync(join(import.meta.dir, '../../../src/dashboard/ui/api.ts'), 'utf8').matchAll(
    /^ {2}'(\w+\.\w+)': /gm,
  ),
]
  .map(([, method = '']) => method)
  .filter((method) => !method.startsWith('session.'))

/** Each kind of call with each of its rights. Calls that only operators make lack being one. */
const CASES = ROWS.filter(({ route }) => CALLED.includes(route)).flatMap(
  (row): { row: Row; without: readonly string[] }[] =>
    row.isForOperator === true ? [{ row, without: [] }] : row.needs.map((without) => ({ row, without })),
)

let server: TestServer
let dashboard: DashboardPage
let page: Page
let fixture: Fixture
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM === null) return
  ;({ server, dashboard, page, stop } = await startDashboard())
  fixture = await makeFixture(server)
})
afterAll(() => stop?.())

const made = new Map<string, Browser>()
/** Signed in with all rights but one. */
async function signedInWithout(without: readonly string[]): Promise<Browser> {
  const known = made.get(without.join())
  if (known !== undefined) return known
  const browser = new Browser(server.url)
  const held = EVERYTHING.filter((each) => !without.includes(each))
  const rootKey = await fixture.workspace.rootKeyWith(...held)
  expect((await browser.signIn(rootKey)).status).toBe(200)
  made.set(without.join(), browser)
  return browser
}

test('every method that the dashboard calls has a row here, and calls in the table of rights', () => {
  expect(Object.keys(SHOWN).sort()).toEqual([...new Set(CALLED)].sort())
  const known = new Set(ROWS.map(({ route }) => route))
  expect(CALLED.filter((method) => !known.has(method))).toEqual([])
})

describe.skipIf(CHROMIUM === null)('without one right', () => {
  test('each call is refused', async () => {
    const wrong: string[] = []
    for (const { row, without } of CASES) {
      const browser = await signedInWithout(without)
      const { status, body } = await browser.call(row.route, row.input(fixture))
      if (status !== 403)
        wrong.push(`${row.route} ${row.what ?? ''} without ${without[0]}: ${status} ${JSON.stringify(body)}`)
    }
    expect(wrong).toEqual([])
  })

  test('each button is off and names the right, and each panel says what is missing', async () => {
    const wrong: string[] = []
    const done = new Set<string>()
    for (const { row, without } of CASES) {
      const { route } = row
      const shown = SHOWN[route as Method] // CASES are of CALLED, whose keys these are
      const name = `${route} without ${without[0] ?? 'being an operator'}`
      // What only some calls need is known when they are made.
      const isOfAll =
        row.isForOperator === V1_NEEDS[route]?.isForOperator ||
        V1_NEEDS[route]?.all.some(([first]) => first === without[0])
      if (shown === null || isOfAll !== true || done.has(name)) continue
      if (!IS_NIGHTLY && !BY_DAY.includes(row.route)) continue
      done.add(name)
      await open(shown.at, await signedInWithout(without))
      await shown.prepare?.()
      const seen = await expected(shown, row, without)
        .first()
        .waitFor({ timeout: 5_000 })
        .then(
          () => true,
          () => false,
        )
      if (!seen) wrong.push(`${name}: ${JSON.stringify(shown)}`)
    }
    expect(wrong).toEqual([])
    expect(dashboard.complaints).toEqual([])
  })
})

async function open(at: string, { cookies }: Browser): Promise<void> {
  await dashboard.forget()
  const { hostname: domain } = new URL(server.url)
  const cookie = { domain, path: '/dashboard', httpOnly: true, sameSite: 'Strict' } as const
  await page.context().addCookies([...cookies].map(([name, value]) => ({ name, value, ...cookie })))
  const path = at.replace(/\{(\w+)\}/g, (_, text: keyof Fixture['texts']) =>
    encodeURIComponent(fixture.texts[text]),
  )
  await dashboard.visit(fixture.workspace, path)
  await page.locator('.frame h1').waitFor()
}

async function searchFor(text: string): Promise<void> {
  await page.getByLabel('Search', { exact: true }).fill(text)
  await page.keyboard.press('Enter')
}

/** What the page must show. */
function expected(shown: Shown, { isForOperator }: Row, [right = '']: readonly string[]): Locator {
  if ('says' in shown) return page.getByText(shown.says)
  if ('panel' in shown) return dashboard.panel(shown.panel).getByText(/Not shown: /)
  const reason = isForOperator === true ? 'needs an operator root key' : `needs ${right}`
  return page
    .locator('button[aria-disabled=true]')
    .filter({ hasText: shown.button })
    .filter({ hasText: reason })
}
