import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { hashKey } from '../../src/verify/secret.ts'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase } from '../support/database.ts'
import { outcomeOf } from '../support/outcome.ts'
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
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-cli-'))
})
afterAll(async () => {
  rmSync(folder, { recursive: true })
  await server[Symbol.asyncDispose]()
})

const MAIN = join(import.meta.dir, '../../src/main.ts')

function spawn(
  rootKey: string,
  words: string[],
  env: Record<string, string> = {},
  stdin: Blob | 'ignore' = 'ignore',
) {
  return Bun.spawn([process.execPath, MAIN, ...words], {
    cwd: folder,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      TOLLGATE_URL: server.url,
      TOLLGATE_ROOT_KEY: rootKey,
      ...env,
    },
    stdin,
    stdout: 'pipe',
    stderr: 'pipe',
  })
}

/** Runs a command line in this process. */
const run = (rootKey: string, words: string[], env: Record<string, string> = {}) =>
  runHere(words, { env: { TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY: rootKey, ...env } })

/** Runs it in its own process, for what the runtime does itself, and for the exit status. */
const runProcess = (rootKey: string, words: string[], env: Record<string, string> = {}) =>
  outcomeOf(spawn(rootKey, words, env))

/** The JSON output of a command; fails unless it ends with this status. */
async function json(rootKey: string, words: string[], code = 0) {
  const result = await run(rootKey, [...words, '--json'])
  expect(result).toMatchObject({ code, err: '' })
  return JSON.parse(result.out)
}

describe('a usage error ends with status 2, one line with the problem, and one hint', () => {
  const helpOf = (command: string) => `tollgate help ${command} shows its usage`
  const cases: [string, string[], string, string?][] = [
    [
      'an unknown command',
      ['key', 'steal'],
      'unknown command "key steal"',
      'tollgate help key lists the commands that begin with key',
    ],
    ['a mistyped command', ['key', 'lst'], 'unknown command "key lst"', 'did you mean "tollgate key list"?'],
    [
      'a mistyped command with options',
      ['key', 'creat', '--api', 'api_1'],
      'unknown command',
      'did you mean "tollgate key create"?',
    ],
    [
      'an old word in place of a new one',
      ['identities', 'list'],
      'unknown command',
      'did you mean "tollgate identity list"?',
    ],
    [
      'nothing like a command',
      ['frobnicate'],
      'unknown command "frobnicate"',
      'tollgate help lists the commands',
    ],
    [
      'a secret in place of a command',
      ['tollgate_3sEcReT'],
      'unknown command\n',
      'tollgate help lists the commands',
    ],
    [
      'help of no command',
      ['help', 'frobnicate'],
      'unknown command "frobnicate"',
      'tollgate help lists the commands',
    ],
    [
      'half a command',
      ['api'],
      'api is not a complete command',
      'tollgate help api lists the commands that begin like this',
    ],
    [
      'half of three words',
      ['namespace', 'override'],
      'namespace override is not a complete command',
      'tollgate help namespace override lists the commands that begin like this',
    ],
    ['an unknown option', ['api', 'list', '--nonsense'], 'unknown option --nonsense\n', helpOf('api list')],
    [
      'a mistyped option',
      ['key', 'create', '--exipres=30d'],
      'unknown option --exipres\n',
      'did you mean --expires?',
    ],
    [
      'a root key as an option',
      ['api', 'list', '--root-key=tollgate_secret'],
      'unknown option --root-key\n',
      'other users of this machine could see a root key on the command line: use --root-key-file <path>, --root-key-file - (stdin), or TOLLGATE_ROOT_KEY',
    ],
    ['an unknown letter', ['api', 'list', '-x'], 'unknown option -x\n'],
    ['a name that every object has', ['api', 'list', '--constructor'], 'unknown option --constructor\n'],
    ['an option without its value', ['api', 'create', '--name'], '--name needs a value\n'],
    [
      'an option and its older name',
      ['key', 'create', '--api', 'a', '--credits', '1', '--remaining', '2'],
      '--credits and --remaining are the same option; give one\n',
    ],
    ['an option in place of a value', ['api', 'create', '--name', '--json-lines'], 'as --name=<value>\n'],
    ['a switch with a value', ['limit', 'a', '--json=1'], '--json takes no value\n'],
    ['a missing option', ['key', 'create'], '--api is required\n', helpOf('key create')],
    ['a missing argument that an option may stand for', ['api', 'create'], '<name> is missing\n'],
    ['a missing word', ['key', 'verify'], '<key> is missing'],
    ['a word too many', ['key', 'verify', 'a', 'b'], 'one argument too many; the command takes <key>\n'],
    [
      'words where none is wanted',
      ['api', 'list', 'a', 'b'],
      '2 arguments too many; the command takes no argument\n',
    ],
    [
      'no number',
      ['limit', 'a', '--limit', 'x', '--duration', '1000'],
      '--limit is "x"; it must be a whole number',
    ],
    [
      'no duration',
      ['limit', 'a', '--limit', '1', '--duration', 'soon'],
      '--duration is "soon"; it must be a duration: 30s, 15m,',
    ],
    [
      'a duration of nothing',
      ['limit', 'a', '--limit', '1', '--duration', '0s'],
      '--duration is "0s"; it must be a duration',
    ],
    [
      'no time',
      ['key', 'create', '--api', 'a', '--expires', 'soon'],
      '--expires is "soon"; it must be a time: 2026-12-31,',
    ],
    [
      'a day that is none',
      ['key', 'update', 'k', '--expires', '2026-02-30'],
      '--expires is "2026-02-30"; it must be a time',
    ],
    [
      'no rate',
      ['key', 'create', '--api', 'a', '--ratelimit', '100'],
      '--ratelimit is "100"; it must be a rate such as 100/1m',
    ],
    [
      'no named rate',
      ['identity', 'create', 'user_1', '--ratelimit', '100/1m'],
      'it must be a name and a rate such as requests=100/1m',
    ],
    [
      'no refill',
      ['key', 'create', '--api', 'a', '--refill', '10/week'],
      '--refill is "10/week"; it must be an amount such as 1000/day',
    ],
    [
      'a day of no month',
      ['key', 'create', '--api', 'a', '--refill', '1/day', '--refill-day', '3'],
      '--refill-day needs --refill <n>/month',
    ],
    [
      'no JSON',
      ['key', 'create', '--api', 'a', '--meta', 'secret'],
      `--meta is not a JSON object; write one such as '{"plan":"pro"}'`,
    ],
    ['JSON that is no object', ['key', 'update', 'k', '--meta', '[1]'], '--meta is not a JSON object'],
    ['nothing to change', ['key', 'update', 'key_1'], 'nothing to change; give at least one option\n'],
    [
      'two opposites',
      ['key', 'update', 'key_1', '--enable', '--disable'],
      '--enable or --disable, not both\n',
    ],
    [
      'two changes at once',
      ['key', 'credits', 'key_1', '--add', '1', '--set', '2'],
      'give one of --add, --take and --set\n',
    ],
    [
      'two kinds at once',
      ['key', 'grant', 'key_1', '--role', 'a', '--permission', 'b'],
      'give --permission or --role, not both\n',
    ],
    [
      'an end before the beginning',
      ['usage', '--api', 'a', '--since', '1h', '--until', '2h'],
      '--since must be before --until\n',
    ],
    [
      'a bound without a number',
      ['workspace', 'update', 'ws_1', '--bound', 'keys'],
      '--bound is "keys"; it must be a name and a number',
    ],
    [
      'no URL',
      ['api', 'list', '--url', 'nowhere'],
      '--url is "nowhere"; it must be a URL that starts with http:// or https://\n',
    ],
    ['nobody to ask', ['api', 'delete', 'api_1'], '--yes is required when stdin is not a terminal\n'],
  ]
  test.each(cases)('%s', async (_, words, message, hint = '') => {
    const { code, err, out } = await run(OPERATOR_KEY, words)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toMatch(/^[^\n]+\nhint: [^\n]+\n$/)
    expect(err).toContain(message)
    expect(err).toContain(hint)
    expect(err).not.toMatch(/secret/i)
  })
})

test('--help lists every command, and the help of a command all its options', async () => {
  const { out, code } = await run('', ['--help'])
  expect(code).toBe(0)
  for (const name of ['serve', 'migrate', 'root-key create', 'key revoke', 'import', 'vault reseal', 'bench'])
    expect(out).toContain(`  ${name} `)
  const group = await run('', ['key', '--help'])
  expect(group.out).not.toContain('migrate  ')
  expect(group).toMatchObject({ code: 0, err: '', out: expect.stringContaining('key revoke') })
  const help = await run('', ['key', 'create', '--help'])
  const same = await run('', ['help', 'key', 'create'])
  expect(same).toEqual(help)
  expect(help).toMatchObject({ code: 0, out: expect.stringContaining('--api <id>') })
  expect(await run('', ['namespace', 'override', '--help'])).toMatchObject({
    code: 0,
    out: expect.stringContaining('usage: tollgate namespace override <command>'),
  })
})

test('a refusal, an unreachable server and a wrong variable end with status 1, one line and one hint', async () => {
  const refused = await run('not-a-root-key-at-all', ['api', 'list'])
  expect(refused).toMatchObject({ code: 1, out: '' })
  expect(refused.err).toMatch(
    /^403 UNAUTHORIZED: key not found \(request req_\w+\)\nhint: the root key came from TOLLGATE_ROOT_KEY; .+\n$/,
  )
  const nobody = await run('', ['api', 'list'])
  expect(nobody.err).toMatch(
    /^403 UNAUTHORIZED: .+\nhint: no root key was sent; set TOLLGATE_ROOT_KEY or .+\n$/,
  )
  const absent = await run(OPERATOR_KEY, ['api', 'get', 'api_none'])
  expect(absent.err).toMatch(
    /^404 NOT_FOUND: .+ \(request req_\w+\)\nhint: tollgate api list shows what exists\n$/,
  )
  const away = await run(OPERATOR_KEY, ['api', 'list'], { TOLLGATE_URL: 'http://127.0.0.1:1' })
  expect(away.code).toBe(1)
  expect(away.err).toMatch(
    /^http:\/\/127\.0\.0\.1:1 \(TOLLGATE_URL\) does not answer: nothing listens there\nhint: start a server .+\n$/,
  )
  const forPrograms = await run('not-a-root-key-at-all', ['api', 'list', '--json'])
  expect({ ...forPrograms, err: JSON.parse(forPrograms.err) }).toEqual({
    code: 1,
    out: '',
    err: {
      error: {
        message: '403 UNAUTHORIZED: key not found',
        hint: expect.stringContaining('TOLLGATE_ROOT_KEY'),
        code: 'UNAUTHORIZED',
        status: 403,
        requestId: expect.stringMatching(/^req_/),
      },
    },
  })
  const typedWrongly = await run(OPERATOR_KEY, ['api', 'create', '--json'])
  expect({ ...typedWrongly, err: JSON.parse(typedWrongly.err) }).toEqual({
    code: 2,
    out: '',
    err: {
      error: {
        message: '<name> is missing',
        hint: 'tollgate help api create shows its usage',
        code: null,
        status: null,
        requestId: null,
      },
    },
  })
  const wrong = await run(OPERATOR_KEY, ['api', 'list'], { TOLLGATE_URL: 'nowhere' })
  expect(wrong).toMatchObject({ code: 1, err: expect.stringContaining('TOLLGATE_URL is "nowhere"') })
})

test('workspaces, root keys, APIs and keys can be created, used and revoked', async () => {
  const { workspaceId, rootKey } = await json(OPERATOR_KEY, [
    'workspace',
    'create',
    '--name',
    'from the terminal',
  ])
  const workspaces = await run(OPERATOR_KEY, ['workspace', 'list'])
  expect(workspaces.out).toContain(workspaceId)

  const words = ['root-key', 'create', '--permission', 'api.*.read_api', '--permission', 'api.*.create_api']
  const made = await json(rootKey, [...words, '--name', 'ci'])
  await json(rootKey, ['root-key', 'update', '--id', made.rootKeyId, '--name', 'other', '--disable'])
  expect(await run(made.rootKey, ['api', 'list'])).toMatchObject({ code: 1 })
  await json(rootKey, ['root-key', 'update', '--id', made.rootKeyId, '--enable'])
  const listed: { id: string }[] = await json(rootKey, ['root-key', 'list'])
  expect(listed.find(({ id }) => id === made.rootKeyId)).toMatchObject({
    name: 'other',
    enabled: true,
    permissions: ['api.*.read_api', 'api.*.create_api'],
  })

  const update = ['root-key', 'update', '--id', made.rootKeyId]
  await json(rootKey, [...update, '--expires', '1'])
  expect(await run(made.rootKey, ['api', 'list'])).toMatchObject({ code: 1 })
  await json(rootKey, [...update, '--expires', 'never'])

  const { apiId } = await json(made.rootKey, ['api', 'create', '--name', 'terminal'])
  expect(await json(made.rootKey, ['api', 'list'])).toEqual([
    {
      id: apiId,
      name: 'terminal',
      deleteProtection: false,
      storeEncryptedKeys: true,
      defaultPrefix: null,
      defaultBytes: 16,
      ipWhitelist: null,
      createdAt: expect.any(Number),
      keys: 0,
    },
  ])
  await json(rootKey, ['root-key', 'delete', '--id', made.rootKeyId])
  expect(await run(made.rootKey, ['api', 'list'])).toMatchObject({ code: 1 })

  const key = await json(rootKey, ['key', 'create', '--api', apiId, '--prefix', 'demo', '--remaining', '2'])
  expect(key.key).toStartWith('demo_')
  expect(await json('', ['key', 'verify', key.key])).toMatchObject({ valid: true, remaining: 1 })
  const shown = await run('', ['key', 'verify', key.key])
  expect(shown).toMatchObject({ code: 0, out: `VALID  ${key.keyId}  0 credits left\n` })
  expect(await json('', ['key', 'verify', key.key], 1)).toMatchObject({ code: 'USAGE_EXCEEDED' })
  const unseen = spawn('', ['key', 'verify', '-', '--json'], {}, new Blob([`${key.key}\n`]))
  expect(await new Response(unseen.stdout).json()).toMatchObject({ code: 'USAGE_EXCEEDED' })
  await json(rootKey, ['key', 'revoke', key.keyId])
  expect(await json('', ['key', 'verify', key.key], 1)).toMatchObject({ code: 'NOT_FOUND' })
})

test('an operator creates a root key for a workspace that has lost its own, and revokes one with those it created', async () => {
  const { workspaceId, rootKey, rootKeyId } = await server.workspace()
  await json(rootKey, ['root-key', 'delete', '--id', rootKeyId])
  expect(await run(rootKey, ['api', 'list'])).toMatchObject({ code: 1 })
  const words = ['root-key', 'create', '--workspace', workspaceId, '--permission', '*']
  expect(await run(rootKey, words)).toMatchObject({ code: 1 })
  const another = await json(OPERATOR_KEY, words)
  expect(await run(another.rootKey, ['api', 'list'])).toMatchObject({ code: 0 })

  const create = ['root-key', 'create', '--permission', '*']
  const granter = await json(another.rootKey, create)
  const granted = await json(granter.rootKey, create)
  const shown = await json(another.rootKey, ['root-key', 'list', '--granted-by', granter.rootKeyId])
  expect(shown.map(({ id }: { id: string }) => id)).toEqual([granted.rootKeyId])
  const disable = ['root-key', 'update', '--id', granter.rootKeyId, '--granted']
  expect(await run(another.rootKey, disable)).toMatchObject({ code: 2 })
  await json(another.rootKey, [...disable, '--disable'])
  expect((await run(granted.rootKey, ['api', 'list'])).err).toContain('DISABLED')
  await json(another.rootKey, ['root-key', 'delete', '--id', granter.rootKeyId, '--granted'])
  expect((await run(granted.rootKey, ['api', 'list'])).err).toContain('UNAUTHORIZED')
})

test('limit ends with status 1 when it refuses, and usage shows the decisions', async () => {
  const { rootKey } = await server.workspace()
  const words = ['limit', 'user_1', '--namespace', 'cli', '--limit', '1', '--duration', '86400000']
  expect(await json(rootKey, words)).toMatchObject({ success: true, remaining: 0 })
  const refused = await run(rootKey, words)
  expect(refused.code).toBe(1)
  expect(refused.out).toMatch(/^refused {2}0 of 1 left {2}resets \d{4}-/)
  await server.server.deps.usage.flush()
  const { out, code } = await run(rootKey, ['usage', '--namespace', 'cli', '--hours', '2'])
  expect(code).toBe(0)
  expect(out).toMatch(/^time \(UTC\) +passed +denied +total$/m)
  expect(out).toMatch(/ +1 +1 +2 {2}█{15}░{15}$/m)
  const counted: { passed: number; denied: number }[] = await json(rootKey, ['usage', '--namespace', 'cli'])
  expect(counted.at(-1)).toMatchObject({ passed: 1, denied: 1 })
  expect(await run(rootKey, ['usage'])).toMatchObject({ code: 2 })
  // The workspace's first root key holds `*`, which is enough for its own APIs too.
  const { apiId } = await json(rootKey, ['api', 'create', '--name', 'cli'])
  expect(await run(rootKey, ['usage', '--api', apiId, '--hours', '2'])).toMatchObject({ code: 0 })
})

test('a reader that closes the pipe early is not an error', async () => {
  const piped = Bun.spawn(
    ['bash', '-c', 'set -o pipefail; "$@" | true', 'bash', process.execPath, MAIN, 'api', 'list'],
    {
      env: { PATH: process.env.PATH ?? '', TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY: OPERATOR_KEY },
      stdout: 'ignore',
      stderr: 'pipe',
    },
  )
  const err = await new Response(piped.stderr).text()
  expect({ code: await piped.exited, err }).toEqual({ code: 0, err: '' })
})

test('without TOLLGATE_URL the server that these variables would start here is called', async () => {
  const { hostname, port } = new URL(server.url)
  const health = (env: Record<string, string>) => run('', ['health'], { TOLLGATE_URL: '', ...env })
  expect(await health({ HOST: hostname, PORT: port })).toEqual({ code: 0, out: 'ready\n', err: '' })
  expect(await health({ HOST: '0.0.0.0', PORT: port })).toMatchObject({ code: 0 })
  expect(await health({ PORT: '1' })).toMatchObject({
    code: 1,
    out: '',
    err: expect.stringMatching(/^http:\/\/127\.0\.0\.1:1 /),
  })
  expect(await health({ PORT: 'none' })).toMatchObject({ code: 1, err: expect.stringContaining('PORT') })

  const socket = join(folder, 'tollgate.sock')
  await using sidecar = await startTestServer({ env: { PORT: 'none', TOLLGATE_SOCKET: socket } })
  expect(sidecar.url).not.toBe(server.url)
  const through = { PORT: 'none', TOLLGATE_SOCKET: socket }
  expect(await health(through)).toEqual({ code: 0, out: 'ready\n', err: '' })
  const absent = await health({ PORT: 'none', TOLLGATE_SOCKET: `${socket}-absent` })
  expect(absent).toMatchObject({ code: 1, err: expect.stringContaining('(TOLLGATE_SOCKET) does not answer') })
})

/** With a mistyped or foreign `TOLLGATE_URL` the operator root key must not be sent away. */
test('the generated root key is sent only to a server on this machine', async () => {
  const asked: (string | null)[] = []
  const elsewhere = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: (request) => {
      asked.push(request.headers.get('authorization'))
      return Response.json({ apis: [], total: 0 })
    },
  })
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-cli-'))
  try {
    writeFileSync(join(dataDir, 'root-key'), 'tollgate_generated')
    const list = (env: Record<string, string>) =>
      runProcess('', ['api', 'list'], { TOLLGATE_DATA_DIR: dataDir, TOLLGATE_ROOT_KEY: '', ...env })
    await list({ TOLLGATE_URL: elsewhere.url.href })
    await list({ TOLLGATE_URL: 'http://tollgate.example', HTTP_PROXY: elsewhere.url.href })
    expect(asked).toEqual(['Bearer tollgate_generated', null])
  } finally {
    await elsewhere.stop(true)
    rmSync(dataDir, { recursive: true, force: true })
  }
})

/** As in a company's image: every request goes through a proxy, which cannot reach this machine. */
describe('a proxy from the environment is never used for a server on this machine', () => {
  // Nobody listens on port 9.
  const proxies = ['HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'all_proxy', 'HTTPS_PROXY'].flatMap((name) => [
    { [name]: 'http://127.0.0.1:9' },
    { [name]: 'http://127.0.0.1:9', NO_PROXY: 'example.com', no_proxy: 'example.com' },
  ])
  test.each(proxies)('%p', async (proxy) => {
    expect(await runProcess('', ['health'], proxy)).toEqual({ code: 0, out: 'ready\n', err: '' })
  })

  test('for any command and any spelling of this machine’s address', async () => {
    const proxy = { HTTP_PROXY: 'http://127.0.0.1:9', ALL_PROXY: 'http://127.0.0.1:9' }
    const { port } = new URL(server.url)
    const { rootKey } = await server.workspace()
    for (const host of ['localhost', '127.0.0.1', '127.1', '[::ffff:127.0.0.1]'])
      expect(
        await runProcess(rootKey, ['api', 'list'], { ...proxy, TOLLGATE_URL: `http://${host}:${port}/` }),
      ).toMatchObject({ code: 0, err: '' })
    // Without TOLLGATE_URL the server is on this machine, whatever address it listens on.
    const here = { ...proxy, TOLLGATE_URL: '', HOST: '0.0.0.0', PORT: port }
    expect(await runProcess('', ['health'], here)).toMatchObject({ code: 0 })
    // For other machines the proxy is used.
    const elsewhere = await runProcess('', ['health'], {
      ...proxy,
      TOLLGATE_URL: 'http://tollgate.example.com',
    })
    expect(elsewhere).toMatchObject({ code: 1 })
  })
})

describe('the root key can be given outside the command line', () => {
  let workspace: TestWorkspace
  let path: string
  beforeAll(async () => {
    workspace = await server.workspace()
    await workspace.post('apis.createApi', { name: 'mine' })
    path = join(folder, 'the-root-key')
    writeFileSync(path, `${workspace.rootKey}\n`)
  })
  const mine = expect.stringMatching(/^id +name\napi_\w+ +mine\n$/)

  test('in a file or on stdin, which come before the environment', async () => {
    const words = ['api', 'list', '--root-key-file']
    for (const rootKey of ['', OPERATOR_KEY]) {
      expect(await run(rootKey, [...words, path])).toEqual({ code: 0, out: mine, err: '' })
      const piped = await runHere([...words, '-'], {
        env: { TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY: rootKey },
        stdin: `${workspace.rootKey}\n`,
      })
      expect(piped).toEqual({ code: 0, out: mine, err: '' })
    }
  })

  test('and an input without a root key is named but never shown', async () => {
    const wrong = join(folder, 'no-root-key')
    writeFileSync(wrong, 'secret text of another file')
    const refused = await run('', ['api', 'list', '--root-key-file', wrong])
    expect([refused.code, refused.out]).toEqual([2, ''])
    expect(refused.err).toContain(`${wrong} does not contain a root key`)
    expect(refused.err).not.toContain('secret text')
    expect(await run('', ['api', 'list', '--root-key-file', join(folder, 'absent')])).toMatchObject({
      code: 1,
      err: `--root-key-file: ${join(folder, 'absent')} cannot be read: the file or its folder does not exist\n`,
    })
    expect(await run('', ['api', 'list', '--root-key-file', folder])).toMatchObject({
      code: 1,
      err: `--root-key-file: ${folder} cannot be read: it is a folder, not a file\n`,
    })
    expect(await run('', ['key', 'verify', '-', '--root-key-file', '-'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('both read stdin'),
    })
  })

  test('in every command that calls a server, as its help says', async () => {
    const overview = (await run('', ['--help'])).out
    const names = [...overview.matchAll(/^ {2}([a-z][a-z -]*?) {2}/gm)].map(([, name = '']) => name)
    expect(names.length).toBeGreaterThan(10)
    for (const name of names) {
      const { out } = await run('', [...name.split(' '), '--help'])
      expect([name, out.includes('--root-key-file <path>')]).toEqual([name, !LOCAL.includes(name)])
    }
  })
})

/** Commands that need no server. */
const LOCAL = 'serve,migrate,backup,restore,config,config check,doctor,root-key rescue'.split(',')

test('serve --json writes only JSON', async () => {
  await using database = await openTestDatabase()
  const child = spawn('', ['serve', '--json'], {
    PORT: '0',
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
  })
  let out = ''
  let isStopped = false
  for await (const chunk of child.stdout) {
    out += new TextDecoder().decode(chunk)
    if (isStopped || !out.includes('"listening"')) continue
    isStopped = true
    child.kill('SIGTERM')
  }
  expect(await child.exited).toBe(0)
  const lines: Json[] = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const listening = lines.find(({ event }) => event === 'listening')
  expect(listening).toEqual({
    event: 'listening',
    places: [expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/)],
    docs: `${listening?.places?.[0]}/docs`,
    dashboard: `${listening?.places?.[0]}/dashboard`,
    rootKeyFile: null,
    version: packageJson.version,
    commit: expect.stringMatching(/^([0-9a-f]{12}|unknown)$/),
    dataDir: database.dataDir,
    dataDirState: 'new',
    database: expect.any(String),
    shards: expect.any(Number),
    httpThreads: expect.any(Number),
  })
  const wrong = await runProcess('', ['serve', '--json'], { PORT: 'x' })
  expect({ ...wrong, err: JSON.parse(wrong.err) }).toMatchObject({
    code: 1,
    err: { error: { message: expect.stringContaining('PORT is "x"') } },
  })
})

test('identity erase and key erase require --yes when nobody can be asked, and say what is left to do', async () => {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'erased' })
  const make = async (externalId: string) => await workspace.post('keys.createKey', { apiId, externalId })
  const [first, second] = [await make('someone'), await make('someone else')]
  const asked = await run(workspace.rootKey, ['identity', 'erase', 'someone'])
  expect(asked).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--yes is required') })
  const codeOf = async (key: string) => (await server.post('keys.verifyKey', { key })).body.code
  expect(await codeOf(first.key)).toBe('VALID')

  const erased = await run(workspace.rootKey, ['identity', 'erase', 'someone', '--yes'])
  expect(erased).toMatchObject({
    code: 0,
    err: '',
    out: expect.stringMatching(/^erased; replaced by erased_\w+ in usage and audit events\n$/),
  })
  expect(await codeOf(first.key)).toBe('NOT_FOUND')
  expect(await codeOf(second.key)).toBe('VALID')
  expect(await json(workspace.rootKey, ['key', 'erase', second.keyId, '--yes'])).toEqual({
    pseudonym: expect.stringMatching(/^erased_/),
    complete: true,
  })
  expect(await codeOf(second.key)).toBe('NOT_FOUND')
  const unknown = await run(workspace.rootKey, ['identity', 'erase', 'id_none', '--id', '--yes'])
  expect(unknown).toMatchObject({ code: 1, err: expect.stringContaining('404') })
})

test('bench reports as many calls as it made', async () => {
  const { rootKey } = await server.workspace()
  const result = await json(rootKey, ['bench', '--seconds', '1', '--connections', '4'])
  expect(result.requests).toBeGreaterThan(10)
  expect(result.p50Ms).toBeGreaterThan(0)
})

describe('import', () => {
  const makeApi = async (workspace: TestWorkspace): Promise<string> =>
    (await workspace.post('apis.createApi', { name: 'imported' })).apiId
  const totalOf = async (workspace: TestWorkspace, apiId: string): Promise<number> =>
    (await workspace.get('apis.listKeys', { apiId, limit: 1 })).total
  const valid = async (key: string) => (await server.post('keys.verifyKey', { key })).body

  test('accepts a CSV with quotes, reports refused lines, and does not create a key twice', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'keys.csv')
    const rows = [
      'hash,name,externalId,meta,remaining,enabled',
      `${hashKey('csv-one')},"quoted, ""name""\nover two lines",user_1,"{""plan"":""pro""}",5,true`,
      `${hashKey('csv-two')},,,,,false`,
      `${hashKey('csv-three')},,,,0,`,
      'only,three,cells',
      `${hashKey('csv-one')},again,,,,`,
    ]
    writeFileSync(path, `${rows.join('\r\n')}\r\n`)
    const result = await json(workspace.rootKey, ['import', path, '--api', apiId], 1)
    expect(result).toEqual({
      imported: 2,
      existing: 1,
      refused: 2,
      skipped: 2,
      lines: 7,
      expired: 0,
      repeated: 1,
    })
    const refused = readFileSync(`${path}.refused`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(refused.map(({ line }) => line)).toEqual([5, 6])
    expect(refused[0].reason).toContain('remaining')
    expect(await valid('csv-one')).toMatchObject({
      valid: true,
      name: 'quoted, "name"\nover two lines',
      meta: { plan: 'pro' },
      remaining: 4,
      identity: { externalId: 'user_1' },
    })
    expect(await valid('csv-two')).toMatchObject({ code: 'DISABLED' })

    const again = await json(workspace.rootKey, ['import', path, '--api', apiId], 1)
    expect(again).toMatchObject({ imported: 0, existing: 3, refused: 2 })
    expect(await totalOf(workspace, apiId)).toBe(2)
  })

  /** The purpose of the progress file: a million keys must not start over because a laptop was closed. */
  test('killed in the middle and run again, it neither loses nor doubles a key', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'many.ndjson')
    const count = 6000
    const lines = Array.from({ length: count }, (_, index) =>
      JSON.stringify({ hash: { value: hashKey(`many-${index}`), variant: 'sha256_base64' } }),
    )
    lines[10] = 'this is no JSON'
    writeFileSync(path, lines.join('\n'))
    const child = spawn(workspace.rootKey, ['import', path, '--api', apiId, '--json'])
    while ((await totalOf(workspace, apiId)) < 1000) await Bun.sleep(20)
    child.kill('SIGKILL')
    await child.exited
    const between = JSON.parse(readFileSync(`${path}.progress`, 'utf8'))
    expect(between.line).toBeGreaterThan(0)
    expect(between.line).toBeLessThan(count)

    const result = await json(workspace.rootKey, ['import', path, '--api', apiId], 1)
    expect(result.imported + result.existing).toBe(count - 1)
    expect(result.refused).toBe(1)
    expect(await totalOf(workspace, apiId)).toBe(count - 1)
    expect(await valid('many-0')).toMatchObject({ valid: true })
    expect(await valid(`many-${count - 1}`)).toMatchObject({ valid: true })
    expect(readFileSync(`${path}.refused`, 'utf8')).toBe('{"line":11,"reason":"it is not valid JSON"}\n')
  })

  /** The example of finding 7.1: one line was reported, three were lost. */
  test('every line of a file with stray quotes is imported or reported, and the counts add up', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'quotes.csv')
    const rows = [
      'plaintext,name,expires',
      'quotes-1,27" monitor,',
      'quotes-2,keyboard,',
      'quotes-3,32" screen,',
      'quotes-4,"unclosed,',
      '',
      'quotes-5,"over',
      'two lines",1000000000000',
      'quotes-2,again,',
      'quotes-6 ,blank behind,',
    ]
    writeFileSync(path, rows.join('\n'))
    const first = await run(workspace.rootKey, ['import', path, '--api', apiId])
    expect(first).toEqual({
      code: 1,
      out: `imported 4, there already 1, refused 2, skipped 3, of 10 lines; see ${path}.refused; 1 repeat the key of an earlier line; 1 have already expired\n`,
      err: '',
    })
    expect(readFileSync(`${path}.refused`, 'utf8')).toBe(
      [
        '{"line":5,"reason":"a cell begins with a quote but does not end with one"}',
        '{"line":10,"reason":"plaintext: begins or ends with white space"}',
        '',
      ].join('\n'),
    )
    expect(await valid('quotes-1')).toMatchObject({ valid: true, name: '27" monitor' })
    expect(await valid('quotes-3')).toMatchObject({ valid: true, name: '32" screen' })
    expect(await valid('quotes-5')).toMatchObject({ code: 'EXPIRED', name: 'over\ntwo lines' })
    expect(await totalOf(workspace, apiId)).toBe(4)
  })

  /** The example of finding 7.2: it said "imported 1", but the key was never found. */
  test('a hash in hex is found by its key; a text that is not SHA-256 is refused and not repeated', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'hex.csv')
    const key = `hex-${crypto.randomUUID()}`
    const hex = Buffer.from(hashKey(key), 'base64').toString('hex')
    writeFileSync(path, `hash\n${hex}\n${hex.slice(2)}\n${key}\n`)
    expect(await json(workspace.rootKey, ['import', path, '--api', apiId], 1)).toMatchObject({
      imported: 1,
      refused: 2,
      lines: 4,
    })
    expect(await valid(key)).toMatchObject({ valid: true })
    const refused = readFileSync(`${path}.refused`, 'utf8')
    expect(refused).toContain('"line":3,"reason":"hash: has 62 characters; it must be the SHA-256 of the key')
    expect(refused).not.toContain(key)
  })

  /** On a pseudo-terminal, with Ctrl-C. */
  test('on a terminal a bar fills; Ctrl-C prints where it stopped, and the next run continues there', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'bar.ndjson')
    const count = 4000
    const lines = Array.from({ length: count }, (_, index) =>
      JSON.stringify({ plaintext: `bar-key-${index}`, name: 'n'.repeat(250) }),
    )
    writeFileSync(path, lines.join('\n'))
    let seen = ''
    const start = () => {
      const decoder = new TextDecoder()
      seen = ''
      return Bun.spawn([process.execPath, MAIN, 'import', path, '--api', apiId], {
        env: {
          PATH: process.env.PATH ?? '',
          TOLLGATE_URL: server.url,
          TOLLGATE_ROOT_KEY: workspace.rootKey,
        },
        terminal: {
          cols: 120,
          rows: 20,
          data: (_, chunk) => {
            seen += decoder.decode(chunk, { stream: true })
          },
        },
      })
    }
    const percents = () => [...seen.matchAll(/\r[█░]{30} (\d+) %/g)].map(([, percent]) => Number(percent))

    const stopped = start()
    while (!percents().some((percent) => percent > 0 && percent < 100)) await Bun.sleep(10)
    stopped.terminal?.write('\x03')
    expect(await stopped.exited).toBe(130)
    const [, line = ''] =
      /\nstopped after line (\d+); run the same command again to continue from there\r\n$/.exec(seen) ?? []
    expect(Number(line)).toBeWithin(0, count)

    expect(await start().exited).toBe(0)
    expect(percents()).toEqual(percents().toSorted((a, b) => a - b))
    expect(seen).toContain(`\r${'█'.repeat(30)} 100 %  ${count} keys`)
    expect(seen).toMatch(/\nimported \d+, there already \d+, refused 0, skipped 0, of \d+ lines\r\n$/)
    expect(await totalOf(workspace, apiId)).toBe(count)
  })

  /** An import runs days ahead, and once more at the switch: the second run must not take longer. */
  test('a second import of a file that has grown makes at most two calls for each hundred keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'grown.ndjson')
    const linesOf = (names: string[]) => names.map((name) => JSON.stringify({ plaintext: name })).join('\n')
    const old = Array.from({ length: 400 }, (_, index) => `grown-key-${index}`)
    const fresh = Array.from({ length: 100 }, (_, index) => `fresh-key-${index}`)
    writeFileSync(path, linesOf(old))
    await json(workspace.rootKey, ['import', path, '--api', apiId])
    const callsSoFar = async () => {
      const text = await (await fetch(`${server.url}/metrics`)).text()
      return [...text.matchAll(/^tollgate_http_requests_total\{[^}]*migrations\.createKeys[^}]*\} (\d+)$/gm)]
        .map(([, count]) => Number(count))
        .reduce((sum, count) => sum + count, 0)
    }
    const before = await callsSoFar()
    expect(before).toBeGreaterThanOrEqual(4)

    // Mixed, so that every call has both kinds.
    writeFileSync(path, linesOf(old.flatMap((key, index) => [key, ...fresh.slice(index, index + 1)])))
    const again = await json(workspace.rootKey, ['import', path, '--api', apiId])
    expect(again).toMatchObject({ imported: 100, existing: 400, refused: 0, lines: 500 })
    expect((await callsSoFar()) - before).toBeWithin(5, 11)
    expect(await totalOf(workspace, apiId)).toBe(500)
  })

  test('a dry run says line by line what would be refused, and changes nothing', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'dry.csv')
    const rows = [
      'hash,roles,remaining',
      ...Array.from({ length: 100 }, (_, index) => `${hashKey(`dry-${index}`)},,`),
      `${hashKey('dry-role')},admin,`,
      `${hashKey('dry-count')},,-3`,
      'too few cells',
    ]
    writeFileSync(path, rows.join('\n'))
    const words = ['import', path, '--api', apiId, '--dry-run']
    expect(await json(workspace.rootKey, words, 1)).toEqual({
      lines: 104,
      new: 100,
      existing: 0,
      refused: 3,
      refusedLines: [
        { line: 102, reason: 'roles not found: admin' },
        { line: 103, reason: 'remaining: Number must be greater than or equal to 1' },
        { line: 104, reason: 'it has 1 cells, the header line has 3' },
      ],
    })
    expect(await totalOf(workspace, apiId)).toBe(0)
    expect([`${path}.progress`, `${path}.refused`].map(existsSync)).toEqual([false, false])

    await json(workspace.rootKey, ['import', path, '--api', apiId], 1)
    const { code, out } = await run(workspace.rootKey, words)
    expect(code).toBe(1)
    expect(out).toContain('line 102: roles not found: admin\n')
    expect(out).toEndWith(
      'would import 0, there already 100, would refuse 3, of 104 lines; nothing was changed\n',
    )
  })

  test('without a terminal no bar is shown', async () => {
    const workspace = await server.workspace()
    const path = join(folder, 'piped.ndjson')
    writeFileSync(path, JSON.stringify({ plaintext: 'piped-key' }))
    const words = ['import', path, '--api', await makeApi(workspace)]
    const first = await run(workspace.rootKey, words)
    expect(first).toEqual({
      code: 0,
      out: 'imported 1, there already 0, refused 0, skipped 0, of 1 line\n',
      err: '',
    })
    const again = await run(workspace.rootKey, words)
    expect(again).toEqual({
      code: 0,
      out: 'imported 0, there already 1, refused 0, skipped 0, of 1 line\n',
      err: '',
    })
  })

  test('a spreadsheet’s CSV with a byte order mark and JSON in cells is read correctly', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'sheet.csv')
    const rows = [
      'plaintext,remaining,refill,ratelimit',
      'sheet-one,5,"{""interval"":""daily"",""amount"":5}","{""limit"":3,""refillRate"":3,""refillInterval"":60000}"',
      'sheet-two,,,no json',
    ]
    writeFileSync(path, `\uFEFF${rows.join('\r\n')}`)
    expect(await json(workspace.rootKey, ['import', path, '--api', apiId], 1)).toMatchObject({
      imported: 1,
      existing: 0,
      refused: 1,
      skipped: 1,
      lines: 3,
    })
    expect(readFileSync(`${path}.refused`, 'utf8')).toBe('{"line":3,"reason":"ratelimit: must be JSON"}\n')
    expect(await valid('sheet-one')).toMatchObject({ valid: true, remaining: 4, ratelimit: { limit: 3 } })
  })

  /** Bug: a row with an empty first cell was read again and again, until memory ran out. */
  test('rows and heads whose first cell is empty are read correctly, and a row with too few cells is refused', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'first-empty.csv')
    const rows = [
      'name,plaintext,remaining',
      ',empty-first,',
      '"",empty-quoted,5',
      'named,"comma, ""quoted""",',
      ',,',
      '"more"behind,empty-never,',
      ',short',
    ]
    writeFileSync(path, rows.join('\n'))
    expect(await json(workspace.rootKey, ['import', path, '--api', apiId], 1)).toMatchObject({
      imported: 3,
      existing: 0,
      refused: 3,
      skipped: 1,
      lines: 7,
    })
    const refused = readFileSync(`${path}.refused`, 'utf8')
    expect(refused.split('\n').map((line) => /"line":(\d)/.exec(line)?.[1])).toEqual([
      '5',
      '6',
      '7',
      undefined,
    ])
    expect(await valid('empty-first')).toMatchObject({ valid: true })
    expect(await valid('empty-quoted')).toMatchObject({ valid: true, remaining: 4 })
    expect(await valid('comma, "quoted"')).toMatchObject({ valid: true, name: 'named' })

    writeFileSync(path, ',plaintext\na,b\n')
    const { code, err } = await run(workspace.rootKey, ['import', path, '--api', apiId])
    expect(code).toBe(1)
    expect(err).toStartWith('column "" is unknown')
  })

  test('a file that is not such a table is refused in one line, before a key is created', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'wrong.csv')
    const refusals: [string, RegExp][] = [
      ['hash,toString\na,b\n', /^column "toString" is unknown; known columns are .*hash.*\n$/],
      ['plaintext,plaintext\na,b\n', /^column "plaintext" appears twice\n$/],
      ['\uFFFEplaintext\na\n', /^the header line has no column .*; known columns are .*\n$/],
    ]
    for (const [text, message] of refusals) {
      writeFileSync(path, text)
      const { code, out, err } = await run(workspace.rootKey, ['import', path, '--api', apiId])
      expect({ code, out }).toEqual({ code: 1, out: '' })
      expect(err).toMatch(message)
    }
    const folderItself = await run(workspace.rootKey, ['import', folder, '--api', apiId])
    expect(folderItself).toMatchObject({ code: 1, err: `${folder} is a folder; import takes one file\n` })
    expect(await totalOf(workspace, apiId)).toBe(0)
  })

  /** With the progress of a first try elsewhere, the keys sent there would be left out. */
  test('progress for another API or file is ignored', async () => {
    const workspace = await server.workspace()
    const [first, second] = [await makeApi(workspace), await makeApi(workspace)]
    const path = join(folder, 'moved.ndjson')
    const lines = Array.from({ length: 150 }, (_, index) =>
      JSON.stringify({ plaintext: `moved-key-${index}` }),
    )
    // Refused to the root key below, so that the first hundred is done and the file is not.
    lines[120] = JSON.stringify({ plaintext: 'moved-elsewhere', apiId: second })
    writeFileSync(path, lines.join('\n'))
    const denied = await workspace.rootKeyWith(`api.${first}.create_key`)
    const stopped = await run(denied, ['import', path, '--api', first])
    expect(stopped).toMatchObject({ code: 1, err: expect.stringContaining('403') })
    expect(JSON.parse(readFileSync(`${path}.progress`, 'utf8'))).toMatchObject({ line: 100, imported: 100 })

    const moved = await json(workspace.rootKey, ['import', path, '--api', second])
    expect(moved).toMatchObject({ imported: 50, existing: 100, refused: 0 })
    expect(await totalOf(workspace, first)).toBe(100)
    expect(await totalOf(workspace, second)).toBe(50)
    expect(existsSync(`${path}.progress`)).toBe(false)
  })

  test('a root key without the right ends the import, and no line is reported as refused', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const path = join(folder, 'denied.ndjson')
    writeFileSync(path, JSON.stringify({ plaintext: 'some-key-of-yours' }))
    const rootKey = await workspace.rootKeyWith('api.*.read_api')
    const { code, err } = await run(rootKey, ['import', path, '--api', apiId])
    expect(code).toBe(1)
    expect(err).toStartWith('403 ')
    expect(await run(workspace.rootKey, ['import', join(folder, 'absent.csv')])).toMatchObject({ code: 1 })
    // A server that was never there is not waited for either.
    const beganAt = performance.now()
    const away = await run(rootKey, ['import', path, '--api', apiId], { TOLLGATE_URL: 'http://127.0.0.1:1' })
    expect(away).toMatchObject({ code: 1, err: expect.stringContaining('does not answer') })
    expect(performance.now() - beganAt).toBeLessThan(30_000)
  })
})
