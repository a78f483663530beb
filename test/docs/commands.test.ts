import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { TARGETS } from '../../release/targets.ts'
import { COMMANDS } from '../../src/cli/commands.ts'
import { readConfig, SECRETS } from '../../src/config.ts'
import { baseObjects, ofKind } from '../deploy/manifests.ts'
import { copyEmbedded, openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { callsTo } from '../support/server.ts'
import { ALL_BLOCKS, type Block, blocksOf, blockWith, PATIENT, ROOT } from './blocks.ts'

/**
 * Runs the commands of README and the docs word for word, those of each document in order in one shell, in a copy of the
 * product with its installed packages. Only the address and the duration of loads are replaced. On the embedded database,
 * as for a reader; what is about Postgres runs with the suite on Postgres.
 */
setDefaultTimeout(300_000)
/** Commands that wait for a failed server never end. Then its log is shown. */
const RUN_MS = 280_000

/** Commands that cannot run here, with a check of what can be checked. */
const NOT_RUN: {
  doc: string
  text: string
  reason: string
  check: (block: Block) => void | Promise<void>
}[] = [
  {
    doc: 'README',
    text: 'npm install && npm start',
    reason: 'npm would fetch Bun and every package from the registry; the CI does so before it runs this',
    check: () => {
      expect(packageJson.scripts.start).toContain('src/main.ts serve')
      expect(packageJson.devDependencies.bun).toBe(Bun.version)
      expect(readFileSync(join(ROOT, '.ci/run'), 'utf8')).toContain('\nnpm install')
    },
  },
  {
    doc: 'README',
    text: 'bun run check',
    reason: 'they are what runs this, or run for minutes',
    check: ({ text }) => {
      for (const [, script] of text.matchAll(/^bun run (\w+)/gm))
        expect(Object.keys(packageJson.scripts)).toContain(script ?? '')
    },
  },
  {
    doc: 'monitoring',
    text: 'promtool check rules',
    reason: 'it changes the rules of this repository; test/observe/rules.test.ts checks them',
    check: ({ text }) => {
      for (const name of ['deploy/prometheus', 'deploy/prometheus/rules.yml'])
        expect([name, existsSync(join(ROOT, name))]).toEqual([name, true])
      expect(text.split('\n')[0]).toBe('cd deploy/prometheus')
    },
  },
  {
    doc: 'install',
    text: 'npx tollgate',
    reason:
      'npm would fetch it from the registry; test/release/whole.test.ts installs it from what a release makes',
    check: ({ text }) => expect(text).toBe(`npx ${packageJson.name} serve\n`),
  },
  {
    doc: 'install',
    text: 'sha256sum --check',
    reason: 'only a release has these files; test/release/whole.test.ts makes one',
    check: ({ text }) => {
      const named = text.match(/tollgate-[\d.]+-[a-z0-9-]+(?=\.tar\.gz)/g)
      expect(named).toEqual([`tollgate-${packageJson.version}-${TARGETS[0].name}`])
    },
  },
  {
    doc: 'backups',
    text: 'deploy/backup/drill.sh',
    reason: 'the names are of another machine; test/deploy/backup.test.ts runs each script',
    check: ({ text }) => {
      for (const [path] of text.matchAll(/deploy\/backup\/\w+\.sh/g))
        expect([path, existsSync(join(ROOT, path))]).toEqual([path, true])
    },
  },
  {
    doc: 'backups',
    text: 'move.backup',
    reason: 'it needs both kinds of database; test/cli/backup.test.ts moves from one to the other and back',
    check: ({ text }) => {
      for (const [, command] of text.matchAll(/tollgate (\w+) move\.backup/g))
        expect(COMMANDS.map(({ name }) => name)).toContain(command ?? '')
    },
  },
  {
    doc: 'kubernetes',
    text: 'docker build',
    reason: 'no engine runs here; test/start/container.test.ts takes the steps of the Dockerfile without one',
    check: ({ text }) => {
      expect(existsSync(join(ROOT, 'Dockerfile'))).toBe(true)
      // The built image is the one that is pushed and that the manifest starts.
      const tags = new Set(text.match(/registry\.example\.com\/\S+/g))
      expect([...tags]).toEqual([`registry.example.com/tollgate:${packageJson.version}`])
    },
  },
  {
    doc: 'kubernetes',
    text: 'kubectl create secret',
    reason: 'there is no cluster; made without one, what it holds is what a server can start with',
    check: async ({ text }) => {
      const values = await secretOf(text)
      const config = readConfig(values)
      expect(Object.keys(values).sort()).toEqual(['DATABASE_URL', 'TOLLGATE_ROOT_KEY', 'TOLLGATE_VAULT_KEY'])
      expect([config.databaseUrl, config.rootKey, config.vaultKeys?.length]).toEqual([
        expect.stringContaining('postgres://'),
        expect.stringMatching(/^tollgate_[0-9a-f]{48}$/),
        1,
      ])
    },
  },
  {
    doc: 'kubernetes',
    text: 'kubectl patch secret',
    reason: 'there is no cluster; with the password in it, it names the Valkey of the overlay',
    check: ({ text }) => {
      const [, patch = ''] = /--patch \\\n {2}"(.*)"/.exec(text) ?? []
      const { stringData } = Bun.YAML.parse(patch.replaceAll('$password', 'secret')) as {
        stringData: Record<string, string>
      } // of strings alone
      expect(stringData).toEqual({
        TOLLGATE_FLEET: 'redis://:secret@tollgate-valkey:6379',
        'valkey.conf': 'requirepass secret',
      })
      expect(() => readConfig({ ...stringData, DATABASE_URL: 'postgres://postgres/tollgate' })).not.toThrow()
    },
  },
  {
    doc: 'kubernetes',
    text: 'kubectl apply',
    reason: 'there is no cluster; the manifests are checked in test/deploy',
    check: ({ text }) => {
      const { kind, metadata } = ofKind(baseObjects(), 'StatefulSet')
      expect(text).toContain(`${kind.toLowerCase()}/${metadata.name}`)
    },
  },
  {
    doc: 'install',
    text: 'docker compose',
    reason: 'no engine runs here; the script and the files are tried in test/deploy',
    check: ({ text }) => {
      const paths = text.match(/deploy\/\S+/g) ?? []
      expect(paths.map((path) => [path, existsSync(join(ROOT, path))])).toEqual([
        ['deploy/compose-secrets.sh', true],
        ['deploy/compose.yaml', true],
      ])
    },
  },
  {
    doc: 'install',
    text: 'install -m 755 dist/tollgate',
    reason: 'it would change this machine; what it copies is where the unit looks',
    check: ({ text }) => {
      const unit = readFileSync(join(ROOT, 'deploy/systemd/tollgate.service'), 'utf8')
      const copies = [...text.matchAll(/^install (?:-D )?-m \d+ (\S+) (\S+)$/gm)].map(
        ([, from = '', to = '']) => [from, to] as const,
      )
      const [program, service, settings] = copies.map(([, to]) => to)
      expect(unit).toContain(`\nExecStart=${program} serve\n`)
      expect(service).toBe('/etc/systemd/system/tollgate.service')
      expect(unit).toContain(`\nEnvironmentFile=-${settings}\n`)
      for (const [from] of copies.slice(1)) expect([from, existsSync(join(ROOT, from))]).toEqual([from, true])
    },
  },
  {
    doc: 'install',
    text: '/etc/tollgate/secrets',
    reason: 'it would change this machine; in another folder it makes what a server can start with',
    check: ({ text }) => {
      const addition = readFileSync(join(ROOT, 'deploy/systemd/postgres.conf'), 'utf8')
      const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-secrets-'))
      try {
        const words = text.replaceAll('/etc/tollgate/secrets', folder).replace(/^install -D .*$/m, '')
        expect(Bun.spawnSync(['bash', '-euc', words], { cwd: ROOT }).exitCode).toBe(0)
        const names = readdirSync(folder).sort()
        expect(names).toEqual([...SECRETS].sort())
        for (const name of names) {
          expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600)
          expect(addition).toContain(`\nLoadCredential=${name}:/etc/tollgate/secrets/${name}\n`)
        }
        const config = readConfig(
          Object.fromEntries(names.map((name) => [`${name}_FILE`, join(folder, name)])),
        )
        expect([config.databaseUrl === null, config.vaultKeys?.length]).toEqual([false, 1])
      } finally {
        rmSync(folder, { recursive: true })
      }
      const [, from = ''] =
        /^install -D -m 644 (\S+) \/etc\/systemd\/system\/tollgate\.service\.d\//m.exec(text) ?? []
      expect(from).toBe('deploy/systemd/postgres.conf')
    },
  },
]

/** The values of kubectl's arguments, evaluated by the shell. */
async function secretOf(text: string): Promise<Record<string, string>> {
  const child = Bun.spawn(['bash', '-c', `kubectl() { printf '%s\\n' "$@"; }\n${text}`])
  const words = (await new Response(child.stdout).text()).trim().split('\n')
  return Object.fromEntries(
    words
      .filter((word) => word.startsWith('--from-literal='))
      .map((word) => word.slice('--from-literal='.length))
      .map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]),
  )
}

/** Commands that only a Postgres can run. */
const ON_POSTGRES = ['pg_dump', 'pg_restore']

const isNotRun = ({ doc, text }: Block) =>
  NOT_RUN.some((each) => each.doc === doc && text.includes(each.text))
const isOnPostgres = ({ text }: Block) => ON_POSTGRES.some((command) => text.startsWith(command))
/** True for a server in the foreground: the reader leaves it running and opens another terminal. */
const isServer = ({ text }: Block) => /^(\S+=\S+ |bun install && )*bun run start$/.test(text.trim())
const shell = ALL_BLOCKS.filter(({ language }) => language === 'sh')

describe.each(NOT_RUN.map((each) => [`${each.doc}: ${each.text}`, each] as const))('%s', (_, each) => {
  test(`is not run: ${each.reason}`, async () => {
    await each.check(blockWith(each.doc, 'sh', each.text))
  })
})

/** A copy of the product in its own folder, like a clone, with its processes. */
class Copy implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-test-docs-'))
  readonly #servers: Bun.Subprocess[] = []
  readonly #dataDirs: string[] = []
  readonly #env: Record<string, string>
  /** Port of its server. */
  readonly port: number

  private constructor(
    port: number,
    /** Port of the reader's own application. */
    private readonly appPort: number,
  ) {
    this.port = port
    this.#env = {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      PORT: String(port),
      TOLLGATE_URL: this.url,
      APP_PORT: String(appPort),
      ...PATIENT,
    }
  }

  static async make(): Promise<Copy> {
    const copy = new Copy(await freePort(), await freePort())
    for (const name of ['package.json', 'bun.lock', 'src', 'sql', 'docs', 'bench'])
      cpSync(join(ROOT, name), join(copy.folder, name), {
        recursive: true,
        filter: (path) => !path.includes('node_modules'),
      })
    // Only what the product needs: the rest of 300 MB is for development.
    const settings = readFileSync(join(ROOT, 'bunfig.toml'), 'utf8')
    writeFileSync(
      join(copy.folder, 'bunfig.toml'),
      settings.replace('[install]', '[install]\nproduction = true'),
    )
    return copy
  }

  get url() {
    return `http://127.0.0.1:${this.port}`
  }

  /** The text with this test's addresses. */
  #adapted(text: string): string {
    return text
      .replaceAll('127.0.0.1:3000', `127.0.0.1:${this.port}`)
      .replaceAll('127.0.0.1:8080', `127.0.0.1:${this.appPort}`)
      .replaceAll('PORT=3000', `PORT=${this.port}`)
      .replaceAll('--duration 10\n', '--duration 1\n')
  }

  /**
   * Ends the processes and replaces the data directory.
   * @param dataDir The data directory of the next server. It gets a migrated database, which saves seconds.
   */
  async renew(dataDir: string): Promise<void> {
    await this.end()
    for (const name of [...this.#dataDirs.splice(0), 'serve-0.log'])
      rmSync(join(this.folder, name), { recursive: true, force: true })
    await copyEmbedded(join(this.folder, dataDir))
    this.#dataDirs.push(dataDir)
  }

  /** Writes a block to a file, as the text tells the reader. */
  save(name: string, { text }: Block): void {
    writeFileSync(join(this.folder, name), this.#adapted(text))
  }

  /** Starts a server in the background. @returns once it listens. */
  async serve(text: string, env: Record<string, string> = {}): Promise<void> {
    const log = Bun.file(join(this.folder, `serve-${this.#servers.length}.log`))
    const child = Bun.spawn(['bash', '-c', this.#adapted(text)], {
      cwd: this.folder,
      env: { ...this.#env, ...env },
      stdin: 'ignore',
      stdout: log,
      stderr: log,
      detached: true, // a process group of its own, so that its children end with it
    })
    this.#servers.push(child)
    for (let attempt = 0; attempt < 600; attempt++) {
      if (child.exitCode !== null) break
      if (/^Tollgate listens on /m.test(await log.text().catch(() => ''))) return
      await Bun.sleep(50)
    }
    throw new Error(`${text} does not listen: ${await log.text()}`)
  }

  /**
   * Runs blocks one after the other in one shell, which ends at the first failure.
   * @param before Commands that the text assumes.
   * @returns the output of each, both streams.
   */
  async run(blocks: readonly Block[], before = ''): Promise<string[]> {
    const output = join(this.folder, 'output')
    const parts = blocks.map(({ text }) => `printf '\\x01'\n${this.#adapted(text)}`)
    writeFileSync(join(this.folder, 'commands.sh'), `set -euo pipefail\n${before}\n${parts.join('\n')}`)
    const child = Bun.spawn(['bash', '-c', 'exec bash commands.sh > output 2>&1'], {
      cwd: this.folder,
      env: this.#env,
      stdin: 'ignore',
      detached: true,
    })
    this.#servers.push(child)
    const late = Bun.sleep(RUN_MS).then(() => 'late')
    const code = await Promise.race([child.exited, late])
    const [, ...written] = readFileSync(output, 'utf8').split('\x01')
    if (code !== 0) {
      const block = blocks[written.length - 1]
      const logs = await Promise.all(
        [...new Bun.Glob('*.log').scanSync(this.folder)].map(
          async (name) => `${name}: ${await Bun.file(join(this.folder, name)).text()}`,
        ),
      )
      throw new Error(`${block?.doc}:${block?.line} ends with ${code}: ${written.at(-1)}\n${logs.join('\n')}`)
    }
    return written
  }

  /** Kills every started process with its children. */
  async end(): Promise<void> {
    for (const child of this.#servers.splice(0)) {
      try {
        process.kill(-child.pid, 'SIGKILL') // the group
      } catch {
        // the whole group has ended
      }
      await child.exited
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end()
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/**
 * Stands in for systemd: the same words start and stop the server of this folder. As with systemd, variables exported by
 * the reader have no effect: the server gets those of the unit and of its file.
 */
const SYSTEMCTL = `
UNIT=$(export -p)
systemctl() {
  [ "$2" = tollgate ]
  case "$1" in
    start)
      env -i bash -c "$UNIT
        set -a
        if [ -f tollgate.env ]; then . ./tollgate.env; fi
        exec bun run start" >> serve.log 2>&1 &
      until curl -sf "$TOLLGATE_URL/v1/liveness" > /dev/null; do sleep 0.05; done ;;
    stop)
      local pid; pid=$(cat .tollgate/node-0.pid)
      kill -TERM "$pid"
      while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done ;;
    *) return 1 ;;
  esac
}`

/** Text of a block → the expected output. Other commands must only succeed. */
type Expected = Record<string, RegExp>

function expectWritten(blocks: readonly Block[], written: readonly string[], expected: Expected): void {
  for (const [text, pattern] of Object.entries(expected)) {
    const index = blocks.findIndex((block) => block.text.includes(text))
    expect(`${text}: ${written[index]}`).toMatch(pattern)
  }
}

const ran = new Set<string>()
const nameOf = ({ doc, line }: Block) => `${doc}:${line}`
/** The commands of a document that run beside its server. */
function commandsOf(doc: string): Block[] {
  const blocks = blocksOf(doc).filter(
    (block) => block.language === 'sh' && !isNotRun(block) && !isServer(block) && !isOnPostgres(block),
  )
  for (const block of blocks) ran.add(nameOf(block))
  return blocks
}

describe.if(TEST_DATABASE_URL === null)('on the embedded database', () => {
  let copy: Copy
  beforeAll(async () => {
    copy = await Copy.make()
    await copy.run([{ doc: 'installation', line: 1, language: 'sh', text: 'bun install\n' }])
  })
  afterAll(() => copy[Symbol.asyncDispose]())

  describe('with the server that the first command of README installs and starts', () => {
    beforeAll(async () => {
      await copy.renew('.tollgate')
      const start = blockWith('README', 'sh', 'bun install && bun run start')
      for (const same of shell.filter(({ text }) => text === start.text)) ran.add(nameOf(same))
      await copy.serve(start.text)
      copy.save('documents.ts', blockWith('tutorial', 'ts', 'Bun.serve'))
    })

    const documents: [string, Expected][] = [
      [
        'README',
        {
          'for i in 1 2 3': /("success":true[\s\S]*){2}"success":false/,
          'keys.verifyKey': /"valid":true.*"credits":9/,
          'tollgate usage': / 1 +0 +1\b/,
          'tollgate --help': /usage: tollgate/,
        },
      ],
      [
        'tutorial',
        {
          'documents.ts': /(hello user_123\n){5}(RATE_LIMITED\n){2}NOT_FOUND/,
          'reset; reset; reset': /("success":true[\s\S]*){2}"success":false/,
          'tollgate usage': /VALID|valid/,
          'key revoke': /"valid":false.*"code":"NOT_FOUND"/,
        },
      ],
      ['install', { doctor: /no problems/, 'bun run build': /tollgate \d+\.\d+\.\d+ \(commit / }],
      [
        'billing',
        {
          'keys.verifyKey "{': /"valid":true.*"remaining":995/,
          groupBy: /"externalId": "customer_42"/,
          'keys.updateRemaining': /"remaining":1994/,
        },
      ],
      ['tenants', { 'workspace create': /acme/, 'api create': /acme-api/ }],
      ['key-rotation', { 'key revoke': /revoked|deleted/i, 'root-key create': /backend-2026/ }],
      ['monitoring', { liveness: /"database":"ok"/ }],
      ['clients', { 'ratelimit.limit': /"success":true/, 'apis.listApis': /"apis": \[/ }],
      [
        'from-unkey',
        {
          'root-key create': /^.*tollgate_/s,
          'openssl dgst': /51z\+xpkb/,
          'tollgate import': /imported 1, there already 0, refused 0/,
          'key verify': /VALID.*999 credits left/,
        },
      ],
      ['security', { 'root-key create': /tollgate_/ }],
      ['tuning', { 'bench load': /500 of 500 requests answered/, '/metrics': /tollgate_cache_hits_total/ }],
      ['erasure', { 'identity erase': /erased; replaced by erased_/ }],
      ['bounds', { 'workspaces.updateWorkspace': /{}/ }],
      ['postgres', { doctor: /Tollgate \S+ runs at .*no problems/s }],
      ['dashboard', { 'cat .tollgate/root-key': / tollgate_/, 'root-key create': /tollgate_/ }],
    ]
    test.each(documents)('%s', async (doc, expected) => {
      const commands = commandsOf(doc)
      expectWritten(commands, await copy.run(commands), expected)
    })
  })

  test('nginx: the server uses its public URL', async () => {
    await copy.renew('.tollgate')
    const start = blockWith('nginx', 'sh', 'bun run start')
    ran.add(nameOf(start))
    await copy.serve(start.text)
    const { body } = await callsTo(copy.url).get('nothing')
    expect(body.error.docs).toStartWith('https://keys.example.com/errors/')
  })

  test('sidecar', async () => {
    await copy.renew('.tollgate')
    const commands = commandsOf('sidecar')
    expectWritten(commands, await copy.run(commands), { liveness: /"status":"serving"/ })
  })

  test('failures', async () => {
    await copy.renew('crash')
    const commands = commandsOf('failures')
    expectWritten(commands, await copy.run(commands), { 'kill -9': /"remaining":99[\s\S]*"remaining":98/ })
  })

  test.if(IS_NIGHTLY)(
    'backups: saved data is restored, later data is not, and an encrypted key can be decrypted with the new vault key',
    async () => {
      await copy.renew('.tollgate')
      const block = (text: string): Block => ({ doc: 'between', line: 0, language: 'sh', text })
      const commands = commandsOf('backups')
      const at = (text: string) => commands.findIndex((each) => each.text.includes(text))
      const call = (method: string, body: string) =>
        `curl -sS "$TOLLGATE_URL/v1/${method}" -H "Authorization: Bearer $(cat .tollgate/root-key)" -H 'Content-Type: application/json' ${body}`
      const make = (name: string) =>
        block(
          `${name}=$(${call('keys.createKey', `-d "{\\"apiId\\":\\"$API\\",\\"prefix\\":\\"k\\",\\"recoverable\\":true}"`)} | grep -o 'k_[^"]*')\n`,
        )
      const verify = (name: string) =>
        block(
          `curl -sS "$TOLLGATE_URL/v1/keys.verifyKey" -H 'Content-Type: application/json' -d "{\\"key\\":\\"$${name}\\"}"\n`,
        )
      const script = [
        block(
          `systemctl start tollgate\nAPI=$(${call('apis.createApi', `-d '{"name":"saved"}'`)} | grep -o 'api_[^"]*')\n`,
        ),
        make('BEFORE'),
        ...commands.slice(0, at('mv .tollgate broken')),
        make('AFTER'),
        ...commands.slice(at('mv .tollgate broken'), at('vault reseal') + 1),
        verify('BEFORE'),
        verify('AFTER'),
        block(
          `${call('apis.listKeys', `-G -d "apiId=$API" -d decrypt=true`)} | grep -o '"plaintext":"[^"]*"'\necho "$BEFORE"\n`,
        ),
        ...commands.slice(at('vault reseal') + 1),
      ]
      const written = await copy.run(script, SYSTEMCTL)
      expectWritten(script, written, {
        'tollgate migrate': /no migrations to apply/,
        'vault reseal': /resealed 1 of 1 data keys/,
        $BEFORE: /"valid":true/,
        $AFTER: /"code":"NOT_FOUND"/,
        plaintext: /"plaintext":"(k_\w+)"\n\1/,
        'root-key list': /backend/,
      })
    },
  )

  test('every command is run, or listed with the reason why not', () => {
    if (!IS_NIGHTLY) commandsOf('backups') // above, at night
    const missing = shell.filter((each) => !ran.has(nameOf(each)) && !isNotRun(each) && !isOnPostgres(each))
    expect(missing.map((each) => `${nameOf(each)} ${each.text.split('\n')[0]}`)).toEqual([])
  })
})

const HAS_TOOLS = Bun.which('pg_dump') !== null && Bun.which('pg_restore') !== null
describe.if(TEST_DATABASE_URL !== null && HAS_TOOLS)('on Postgres', () => {
  test('backups: a dump restores everything into an empty database', async () => {
    await using full = await openTestDatabase()
    await using empty = await openTestDatabase()
    await emptied(empty.databaseUrl ?? '')
    await using copy = await Copy.make()
    const commands = shell.filter(isOnPostgres)
    expect(commands.map(({ text }) => text.split(' ')[0])).toEqual(ON_POSTGRES)
    const [dump, restore] = commands
    if (dump === undefined || restore === undefined) throw new Error('two commands')
    await copy.run([{ ...dump, text: `export DATABASE_URL=${full.databaseUrl}\n${dump.text}` }])
    await copy.run([{ ...restore, text: `export NEW_DATABASE_URL=${empty.databaseUrl}\n${restore.text}` }])
    const counts = await Promise.all([full, empty].map(({ databaseUrl }) => countTables(databaseUrl ?? '')))
    expect(counts[0]).toBeGreaterThan(10)
    expect(counts[1]).toBe(counts[0] ?? 0)
  })
})

async function emptied(url: string): Promise<void> {
  const sql = new Bun.SQL(url, { max: 1 })
  await sql.unsafe('drop schema public cascade; create schema public')
  await sql.end()
}

async function countTables(url: string): Promise<number> {
  const sql = new Bun.SQL(url, { max: 1 })
  const [row] =
    await sql`select count(*)::int as count from information_schema.tables where table_schema = 'public'`
  await sql.end()
  return row.count
}
