import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { COMMANDS } from '../../src/cli/commands.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase } from '../support/database.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let folder: string
beforeAll(async () => {
  server = await startTestServer()
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-commands-'))
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true })
})

/** A workspace, and a terminal for its root key. */
async function openTerminal() {
  const workspace = await server.workspace()
  const run = (words: string[], options: { stdin?: string; answer?: string; rootKey?: string } = {}) => {
    const { rootKey = workspace.rootKey, ...others } = options
    return runHere(words, { ...others, env: { TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY: rootKey } })
  }
  /** The JSON output; fails unless the command succeeds. */
  const json = async (...words: string[]): Promise<Json> => {
    const { out, err, code } = await run([...words, '--json'])
    expect({ words, code, err }).toEqual({ words, code: 0, err: '' })
    return JSON.parse(out)
  }
  /** The text output; fails unless the command succeeds. */
  const text = async (...words: string[]): Promise<string> => {
    const { out, err, code } = await run(words)
    expect({ words, code, err }).toEqual({ words, code: 0, err: '' })
    return out
  }
  return { workspace, run, json, text }
}

describe('keys', () => {
  test('list reads every page, or as many keys as wanted, and filters by identity', async () => {
    const { workspace, json, text, run } = await openTerminal()
    const { apiId } = await workspace.post('apis.createApi', { name: 'listed' })
    const keys = Array.from({ length: 230 }, (_, index) => ({
      apiId,
      name: `key ${index}`,
      hash: { value: hashKey(`listed-${apiId}-${index}`), variant: 'sha256_base64' },
      ...(index % 100 === 7 ? { externalId: 'user_7' } : {}),
    }))
    for (let from = 0; from < keys.length; from += 100)
      await workspace.post('migrations.createKeys', keys.slice(from, from + 100))
    const listed: { name: string }[] = await json('key', 'list', '--api', apiId)
    expect(new Set(listed.map(({ name }) => name)).size).toBe(230)
    expect(await json('key', 'list', '--api', apiId, '--max', '101')).toHaveLength(101)
    expect(await json('key', 'list', '--api', apiId, '--external-id', 'user_7')).toHaveLength(3)
    const shown = await text('key', 'list', '--api', apiId, '--owner', 'user_7')
    const [head, ...rows] = shown.trimEnd().split('\n')
    expect(head).toMatch(/^id +name +start +external id +enabled +credits +expires +created$/)
    expect(rows.map((row) => row.includes('user_7'))).toEqual([true, true, true])
    expect((await run(['key', 'list', '--api', 'api_none'])).err).toStartWith('404 NOT_FOUND')
  })

  test('create and update take times, rates and refills in people’s formats; never, none and empty clear', async () => {
    const { json, text, workspace } = await openTerminal()
    const { apiId } = await workspace.post('apis.createApi', { name: 'written' })
    await text('permission', 'create', 'documents.read')
    await text('permission', 'create', 'documents.edit')
    await text('role', 'create', 'editor')
    const before = Date.now()
    const create = ['key', 'create', '--api', apiId, '--name', 'one', '--external-id', 'user_1']
    const limits = [
      '--ratelimit',
      '100/1m',
      '--credits',
      '50',
      '--refill',
      '1000/month',
      '--refill-day',
      '15',
    ]
    const links = ['--permission', 'documents.read', '--role', 'editor', '--meta', '{"plan":"pro"}']
    const { keyId } = await json(...create, ...limits, ...links, '--expires', '30d', '--disabled')
    const made = await json('key', 'get', keyId)
    expect(made).toMatchObject({
      name: 'one',
      enabled: false,
      remaining: 50,
      refill: { interval: 'monthly', amount: 1000, refillDay: 15 },
      ratelimit: { limit: 100, duration: 60_000 },
      permissions: ['documents.read'],
      roles: ['editor'],
      meta: { plan: 'pro' },
      identity: { externalId: 'user_1' },
    })
    expect(made.expires).toBeWithin(before + 30 * 86_400_000, Date.now() + 30 * 86_400_000 + 1)
    const shown = await text('key', 'get', keyId)
    expect(shown).toMatch(/^external id +user_1$/m)
    expect(shown).toMatch(/^refill +1000 monthly on day 15$/m)
    expect(shown).toMatch(/^ratelimit +100\/1m$/m)

    const update = (...words: string[]) => text('key', 'update', keyId, ...words)
    await update('--expires', '2027-12-31T12:00+02:00', '--enable', '--permission', 'documents.edit')
    expect(await json('key', 'get', keyId)).toMatchObject({
      expires: Date.UTC(2027, 11, 31, 10),
      enabled: true,
      permissions: ['documents.edit'],
      name: 'one',
      remaining: 50,
    })
    await update('--expires', 'never', '--credits', 'unlimited', '--refill', 'none', '--ratelimit', 'none')
    await update('--name=', '--external-id=', '--meta=', '--permission=', '--role=')
    const cleared = await json('key', 'get', keyId)
    expect(cleared).toMatchObject({ permissions: [], roles: [], enabled: true })
    for (const field of ['expires', 'remaining', 'refill', 'ratelimit', 'name', 'identity', 'meta'])
      expect([field, cleared[field]]).toEqual([field, undefined])

    await update('--remaining', '10')
    expect(await json('key', 'credits', keyId, '--add', '5')).toEqual({ remaining: 15 })
    expect(await text('key', 'credits', keyId, '--take', '20')).toBe('0 credits left\n')
    expect(await text('key', 'credits', keyId, '--set', 'unlimited')).toBe('unlimited credits\n')
    await text('key', 'grant', keyId, '--permission', 'documents.read', '--permission', 'documents.edit')
    await text('key', 'grant', keyId, '--role', 'editor')
    await text('key', 'ungrant', keyId, '--permission', 'documents.edit')
    expect(await json('key', 'get', keyId)).toMatchObject({
      permissions: ['documents.read'],
      roles: ['editor'],
    })
  })

  test('a plain number is milliseconds, as in older scripts', async () => {
    const { json, workspace } = await openTerminal()
    const { apiId } = await workspace.post('apis.createApi', { name: 'numbers' })
    const { keyId } = await json('key', 'create', '--api', apiId, '--expires', '1893456000000')
    expect(await json('key', 'get', keyId)).toMatchObject({ expires: 1_893_456_000_000 })
  })
})

test('APIs are created, shown, changed and deleted', async () => {
  const { json, text, run } = await openTerminal()
  const { apiId } = await json('api', 'create', 'one of mine')
  expect(await text('api', 'get', apiId)).toMatch(/^name +one of mine$/m)
  await text('api', 'update', apiId, '--name', 'renamed', '--protect', '--allow-ip', '10.0.0.0/8')
  expect(await json('api', 'get', apiId)).toMatchObject({ name: 'renamed' })
  const { key } = await json('key', 'create', '--api', apiId)
  expect(await run(['key', 'verify', '-'], { stdin: `${key}\n` })).toMatchObject({
    code: 1,
    out: expect.stringMatching(/FORBIDDEN/),
  })
  const protectedOne = await run(['api', 'delete', apiId, '--yes'])
  expect(protectedOne.err).toMatch(/^\d+ DELETE_PROTECTED: .+\nhint: .+\n$/)
  await text('api', 'update', apiId, '--unprotect', '--allow-ip=')
  expect(await run(['key', 'verify', '-'], { stdin: key })).toMatchObject({ code: 0 })
  expect(await text('api', 'delete-keys', apiId, '--yes')).toBe('deleted 1 key\n')
  expect(await run(['key', 'verify', '-'], { stdin: key })).toMatchObject({ code: 1 })

  for (const answer of ['', 'n', 'yesterday']) {
    const declined = await run(['api', 'delete', apiId], { answer })
    expect(declined).toEqual({ code: 1, out: '', err: 'nothing was deleted\n' })
  }
  expect(await run(['api', 'delete', apiId], { answer: 'y' })).toMatchObject({ code: 0, out: 'deleted\n' })
  expect(await json('api', 'list')).toEqual([])
})

test('identities are created, shown, changed and deleted by external id, or by id', async () => {
  const { json, text, run } = await openTerminal()
  const words = [
    'user_1',
    '--meta',
    '{"plan":"pro"}',
    '--ratelimit',
    'requests=100/1m',
    '--ratelimit',
    'a=b=5/s',
  ]
  const { identityId } = await json('identity', 'create', ...words)
  const limits = [
    { name: 'requests', limit: 100, duration: 60_000 },
    { name: 'a=b', limit: 5, duration: 1000 },
  ]
  const found = await json('identity', 'get', 'user_1')
  expect(found).toMatchObject({ id: identityId, meta: { plan: 'pro' } })
  expect(new Set(found.ratelimits.map((each: Json) => JSON.stringify(each)))).toEqual(
    new Set(limits.map((each) => JSON.stringify(each))),
  )
  expect(await json('identity', 'get', identityId, '--id')).toEqual(found)
  await text('identity', 'update', 'user_1', '--ratelimit=')
  expect(await json('identity', 'get', 'user_1')).toMatchObject({ ratelimits: [], meta: { plan: 'pro' } })
  await text('identity', 'update', identityId, '--id', '--meta', '{}')
  expect(await text('identity', 'list')).toMatch(new RegExp(`^${identityId} +user_1$`, 'm'))
  expect((await run(['identity', 'get', 'user_none'])).err).toContain('hint: tollgate identity list shows')
  await text('identity', 'delete', 'user_1', '--yes')
  expect(await json('identity', 'list')).toEqual([])
})

test('permissions and roles are found by slug and name, or by id', async () => {
  const { json, text, run } = await openTerminal()
  const { permissionId } = await json('permission', 'create', 'documents.read', '--description', 'May read')
  expect(await json('permission', 'get', 'documents.read')).toMatchObject({
    id: permissionId,
    name: 'documents.read',
    description: 'May read',
  })
  const { roleId } = await json('role', 'create', 'editor')
  const set = ['role', 'set-permissions', 'editor']
  expect((await run([...set, '--permission', 'documents.edit'])).err).toStartWith('4')
  const linked = await json(
    ...set,
    '--permission',
    'documents.edit',
    '--permission',
    'documents.read',
    '--create',
  )
  expect(linked).toHaveLength(2)
  expect(await run(set)).toMatchObject({ code: 2, err: expect.stringMatching(/--permission is required/) })
  expect(await json(...set, '--permission=')).toEqual([])
  expect(await json('role', 'get', roleId, '--id')).toMatchObject({ name: 'editor' })
  expect(await text('role', 'list')).toMatch(new RegExp(`^${roleId} +editor$`, 'm'))
  await text('permission', 'delete', permissionId, '--id')
  const slugs = (await json('permission', 'list')).map(({ slug }: { slug: string }) => slug)
  expect(slugs).toEqual(['documents.edit'])
  await text('role', 'delete', 'editor')
  expect(await run(['role', 'delete', 'editor'])).toEqual({
    code: 1,
    out: '',
    err: 'there is no role with this name\nhint: tollgate role list shows what exists; with --id, the argument is an id\n',
  })
})

test('namespaces and their overrides are found by name, or by id', async () => {
  const { json, text, run } = await openTerminal()
  const { namespaceId } = await json('namespace', 'create', 'emails')
  expect((await run(['namespace', 'create', 'emails'])).err).toStartWith('409 ')
  const emails = { id: namespaceId, name: 'emails', scope: null, outage: null }
  expect(await json('namespace', 'list')).toEqual([emails])
  await text('namespace', 'update', 'emails', '--scope', 'local', '--outage', 'open')
  expect(await json('namespace', 'list')).toEqual([{ ...emails, scope: 'local', outage: 'open' }])
  await text('namespace', 'update', namespaceId, '--id', '--scope', '')
  expect(await text('namespace', 'list')).toContain('open')
  expect(await json('namespace', 'list')).toEqual([{ ...emails, outage: 'open' }])
  expect(await run(['namespace', 'update', 'emails'])).toMatchObject({ code: 2 })
  expect((await run(['namespace', 'update', 'emails', '--scope', 'mine'])).err).toContain(
    'scope: Invalid enum value',
  )
  const set = ['namespace', 'override', 'set', 'emails', 'user_1', '--limit', '1', '--duration', '1d']
  const { overrideId } = await json(...set)
  const limit = ['limit', 'user_1', '--namespace', 'emails', '--limit', '10', '--duration', '1d']
  expect(await json(...limit)).toMatchObject({ success: true, limit: 1 })
  expect(await run(limit)).toMatchObject({ code: 1, out: expect.stringMatching(/^refused/) })
  expect(await json('namespace', 'override', 'get', namespaceId, 'user_1', '--id')).toMatchObject({
    id: overrideId,
  })
  const listed = await text('namespace', 'override', 'list', 'emails')
  expect(listed).toMatch(new RegExp(`^${overrideId} +user_1 +1 +1d$`, 'm'))
  await text('namespace', 'override', 'delete', 'emails', 'user_1')
  expect(await run(['namespace', 'override', 'get', 'emails', 'user_1'])).toMatchObject({ code: 1 })
  expect(await run(['namespace', 'delete', 'none', '--yes'])).toMatchObject({ code: 1 })
  await text('namespace', 'delete', 'emails', '--yes')
  expect(await json('namespace', 'list')).toEqual([])
})

test('the audit log is filtered by time, event, root key and resource', async () => {
  const { json, text, workspace } = await openTerminal()
  const { apiId } = await json('api', 'create', 'audited')
  const { keyId } = await json('key', 'create', '--api', apiId)
  await text('key', 'revoke', keyId)
  const eventsOf = async (...words: string[]) =>
    (await json('audit', 'list', ...words)).map(({ event }: { event: string }) => event)
  expect(await eventsOf('--resource', keyId)).toEqual(['key.create', 'key.delete'])
  expect(await eventsOf('--event', 'key.create', '--since', '1h')).toEqual(['key.create'])
  expect(await eventsOf('--since', '2030-01-01')).toEqual([])
  expect(await eventsOf('--until', '1h')).toEqual([])
  expect(await eventsOf('--actor', workspace.rootKeyId, '--max', '1')).toEqual(['api.create'])
  expect(await text('audit', 'list', '--resource', apiId, '--event', 'api.create')).toMatch(
    new RegExp(
      `^time \\(UTC\\) .*\\n\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d +api\\.create +${workspace.rootKeyId} `,
    ),
  )
})

test('usage is counted from a time on, by hour, day or month, for some keys or identifiers only', async () => {
  const { json, text, run } = await openTerminal()
  const { apiId } = await json('api', 'create', 'counted')
  const [first, second] = [
    await json('key', 'create', '--api', apiId),
    await json('key', 'create', '--api', apiId),
  ]
  for (const key of [first, first, second]) await text('key', 'verify', key.key)
  await server.server.deps.usage.flush()
  const sumOf = async (...words: string[]) => {
    const points: { valid: number }[] = await json('usage', '--api', apiId, ...words)
    return [points.length, points.reduce((sum, { valid }) => sum + valid, 0)]
  }
  expect(await sumOf('--since', '2h')).toEqual([3, 3])
  expect(await sumOf('--since', '2h', '--by', 'month')).toEqual([1, 3])
  expect((await sumOf('--since', '7d', '--key', first.keyId))[1]).toBe(2)
  expect((await sumOf('--since', '7d'))[0]).toBeWithin(7, 10)
  for (const words of [
    ['--hours', '2'],
    ['--days', '2'],
    ['--since', '40d', '--by', 'month'],
  ]) {
    // The only API: all are as one.
    const all: { valid: number; time: number }[] = await json('usage', '--all', ...words)
    const one: { valid: number; time: number }[] = await json('usage', '--api', apiId, ...words)
    const pairs = (points: typeof all) => points.map(({ time, valid }) => [time, valid])
    expect(pairs(all)).toEqual(pairs(one))
  }
  expect(await run(['usage', '--all', '--api', apiId])).toMatchObject({ code: 2 })
  expect(await run(['usage', '--api', apiId, '--since', '1h', '--hours', '1'])).toMatchObject({ code: 2 })
  expect(await run(['usage', '--namespace', 'a', '--key', 'b'])).toMatchObject({ code: 2 })
})

test('root-key whoami shows the root key that commands call with', async () => {
  const { workspace, json, text } = await openTerminal()
  expect(await json('root-key', 'whoami')).toMatchObject({
    rootKeyId: workspace.rootKeyId,
    permissions: ['*'],
  })
  expect(await text('root-key', 'whoami')).toMatch(
    /^id: key_\w+\nname: .+\nworkspace: test .+ \(ws_\w+\)\npermissions: \*\n/,
  )
})

test('root-key create shows the permissions of the root key, even when it has none', async () => {
  const { run, json } = await openTerminal()
  const { out } = await run(['root-key', 'create'])
  const [, id = ''] = /^\S+\n\(id (\S+)\)\npermissions: none; add some with .+\n$/.exec(out) ?? []
  expect(await json('root-key', 'create')).toMatchObject({ permissions: [] })
  await json('root-key', 'update', id, '--permission', 'api.*.read_api', '--expires', '90d')
  const able = await run(['root-key', 'create', '--permission', 'api.*.read_api', '--expires', '2030-01-01'])
  expect(able.out).toMatch(/\npermissions: api\.\*\.read_api\nexpires: 2030-01-01 00:00 UTC\n$/)
  const listed: { id: string; permissions: string[] }[] = await json('root-key', 'list')
  expect(listed.find((each) => each.id === id)?.permissions).toEqual(['api.*.read_api'])
  await json('root-key', 'delete', id)
})

test('the operator renames, bounds and disables a workspace', async () => {
  const { workspace, run } = await openTerminal()
  const operate = async (...words: string[]) => {
    const { code, err } = await run(['workspace', 'update', workspace.workspaceId, ...words], {
      rootKey: OPERATOR_KEY,
    })
    expect({ code, err }).toEqual({ code: 0, err: '' })
  }
  await operate('--name', 'renamed', '--bound', 'apis=1')
  expect(await run(['api', 'create', 'one'])).toMatchObject({ code: 0 })
  expect((await run(['api', 'create', 'two'])).err).toMatch(/^4\d\d .+\nhint: /)
  await operate('--bound=')
  expect(await run(['api', 'create', 'two'])).toMatchObject({ code: 0 })
  await operate('--disable')
  expect((await run(['api', 'list'])).err).toStartWith('403 FORBIDDEN')
  expect(await run(['workspace', 'list'])).toMatchObject({ code: 1 })
})

test('--url comes before TOLLGATE_URL, and common options may precede the command', async () => {
  const { workspace } = await openTerminal()
  const env = { TOLLGATE_URL: 'http://127.0.0.1:1', TOLLGATE_ROOT_KEY: workspace.rootKey }
  expect(await runHere(['api', 'list'], { env })).toMatchObject({
    code: 1,
    err: expect.stringMatching(/\(TOLLGATE_URL\)/),
  })
  for (const words of [
    ['api', 'list', '--url', server.url],
    ['--url', server.url, 'api', 'list'],
    [`--url=${server.url}`, '--json', 'api', 'list'],
  ])
    expect(await runHere(words, { env })).toMatchObject({ code: 0, err: '' })
})

describe('the reason for a missing answer is in Tollgate’s words, without a secret', () => {
  const answering = (answer: () => Response) => Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: answer })
  const outcomes = async (url: string) => {
    const env = { TOLLGATE_ROOT_KEY: 'tollgate_secret_of_mine' }
    const { code, out, err } = await runHere(['api', 'list', '--url', url], { env })
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).not.toMatch(/secret|verbose|fetch|getaddrinfo|typo|Error/)
    expect(err).toMatch(/^[^\n]+\nhint: [^\n]+\n$/)
    return err
  }

  test.each([
    [
      'nothing listens',
      'http://user:secret@127.0.0.1:1',
      'http://127.0.0.1:1 (--url) does not answer: nothing listens',
    ],
    ['no such host', 'http://nowhere.invalid', 'the host name cannot be resolved'],
    ['no such port', 'http://127.0.0.1:99999', 'must be a URL'],
  ])('%s', async (_, url, message) => {
    if (URL.canParse(url)) expect(await outcomes(url)).toContain(message)
    else expect(await runHere(['api', 'list', '--url', url])).toMatchObject({ code: 2 })
  })

  test('when the other end is not Tollgate, or has no TLS', async () => {
    await using page = answering(() => new Response('<html>secret', { status: 502 }))
    expect(await outcomes(page.url.origin)).toContain('the program that answers is not Tollgate')
    expect(await outcomes(page.url.origin.replace('http:', 'https:'))).toContain('does not use TLS')
    await using other = answering(() => Response.json(null, { status: 500 }))
    expect(await outcomes(other.url.origin)).toStartWith('500 ')
  })
})

describe.skipIf(Bun.which('openssl') === null)('an untrusted certificate is reported as such', () => {
  test('with the way to trust its authority', async () => {
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
    const made = Bun.spawnSync(
      [
        'openssl',
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-days',
        '1',
        '-subj',
        '/CN=127.0.0.1',
      ].concat(['-keyout', key, '-out', cert]),
    )
    expect(made.exitCode).toBe(0)
    await using secure = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      tls: { key: Bun.file(key), cert: Bun.file(cert) },
      fetch: () => Response.json({}),
    })
    const { code, err } = await runHere(['health', '--url', secure.url.origin])
    expect(code).toBe(1)
    expect(err).toMatch(
      /does not answer: its certificate is not trusted here \(\w+\)\nhint: set NODE_EXTRA_CA_CERTS/,
    )
    const plain = await runHere(['health', '--url', secure.url.origin.replace('https:', 'http:')])
    expect(plain.err).toContain('check that the address is a Tollgate server')
  })
})

/** Readers copy the examples. This also runs every command once. */
describe('the example in each help text works', () => {
  /** Splits the words like a shell, and finds the redirected file. */
  function wordsOf(example: string): { words: string[]; file: string | null } {
    const words = [...example.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
      ([, single, double, plain]) => single ?? double ?? plain ?? '',
    )
    const at = words.indexOf('<')
    return at === -1 ? { words, file: null } : { words: words.slice(0, at), file: words[at + 1] ?? '' }
  }

  /** Creates the things that the examples name, in a new workspace. */
  async function makeNamed(workspace: TestWorkspace) {
    const { apiId } = await workspace.post('apis.createApi', { name: 'my-api' })
    await workspace.post('permissions.createPermission', { name: 'documents.read' })
    const { roleId } = await workspace.post('permissions.createRole', { name: 'editor' })
    await workspace.post('identities.createIdentity', { externalId: 'user_123' })
    const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'emails' })
    await workspace.post('ratelimits.setOverride', {
      namespaceId,
      identifier: 'user_123',
      limit: 1000,
      duration: 60_000,
    })
    const key = await workspace.post('keys.createKey', {
      apiId,
      externalId: 'user_123',
      remaining: 10,
      permissions: ['documents.read'],
    })
    const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { permissions: [] })
    const ids = { api_1234: apiId, key_1234: key.keyId, role_1234: roleId, rk_1234: rootKeyId }
    return { key: key.key as string, ids: { ...ids, ws_1234: workspace.workspaceId } } // as the reply has it
  }

  let shared: ReturnType<typeof makeWorkspace> | null = null
  const makeWorkspace = async () => {
    const workspace = await server.workspace()
    return { workspace, ...(await makeNamed(workspace)) }
  }
  /** Those that change or delete what is named get a workspace of their own. */
  const workspaceFor = (example: string) => {
    if (/\b(delete|delete-keys|update|revoke|erase|reroll|ungrant|set-permissions)\b/.test(example))
      return makeWorkspace()
    shared ??= makeWorkspace()
    return shared
  }

  const elsewhere = ['serve'] // a server in the foreground: cli.test.ts starts and stops one
  for (const command of COMMANDS.filter(({ name }) => !elsewhere.includes(name)))
    test(command.example, async () => {
      expect(command.example).toStartWith(command.name)
      const { workspace, key, ids } = await workspaceFor(command.example)
      const keyFile = join(folder, 'keys.csv')
      writeFileSync(keyFile, `plaintext\n${crypto.randomUUID()}\n`)
      const files = { 'keys.csv': keyFile, 'tollgate.backup': join(folder, 'tollgate.backup') }
      const named = new Map(Object.entries({ ...ids, ...files }))
      const { words, file } = wordsOf(command.example)
      expect([null, 'key.txt']).toContain(file)
      await using database = command.isLocal === true ? await openTestDatabase() : null
      // A database without a server has no root key to lose.
      if (database !== null && command.name === 'root-key rescue')
        await (await startTestServer({ database }))[Symbol.asyncDispose]()
      const isOperators = command.name.startsWith('workspace') || command.name.startsWith('vault')
      const outcome = await runHere(
        words.map((word) => named.get(word) ?? word),
        {
          stdin: `${key}\n`,
          env: {
            TOLLGATE_URL: server.url,
            TOLLGATE_ROOT_KEY: isOperators ? OPERATOR_KEY : workspace.rootKey,
            ...(database === null
              ? {}
              : {
                  // An embedded database is restored into a new folder only.
                  TOLLGATE_DATA_DIR: join(database.dataDir, command.name === 'restore' ? 'restored' : ''),
                  DATABASE_URL: database.databaseUrl ?? '',
                }),
          },
        },
      )
      expect(outcome).toMatchObject({ code: 0, err: '' })
      expect(outcome.out).not.toBe('')
      expect((await runHere(['help', ...command.name.split(' ')])).out).toContain(
        `\nexample:\n  tollgate ${command.example}\n`,
      )
    })

  test('serve is not run here, and its example is the command that starts it', () => {
    expect(COMMANDS.find(({ name }) => name === 'serve')?.example).toBe('serve')
  })
})
