import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'

/**
 * A whole release of what is committed, made twice, in two folders, and used as its users do. It takes minutes and needs the
 * npm registry: `bun run nightly` has it, in the suite on the embedded database.
 */
setDefaultTimeout(3_600_000)

const root = join(import.meta.dir, '../..')
/** Of no release: it is prepared in the clone. */
const VERSION = '99.0.0'

describe.if(IS_NIGHTLY && TEST_DATABASE_URL === null)('a release', () => {
  let folder: string
  let clone: string
  let made: string
  const run = (words: string[], cwd: string, env: Record<string, string | undefined> = process.env) => {
    const done = Bun.spawnSync(words, { cwd, env })
    const [out, err] = [done.stdout.toString(), done.stderr.toString()]
    expect(done.exitCode, `${words.join(' ')}: ${out}${err}`).toBe(0)
    return out
  }
  const git = (cwd: string, ...words: string[]) =>
    run(['git', '-c', 'user.name=t', '-c', 'user.email=t@example.com', ...words], cwd)
  /** A clone with its tools. Runtimes are fetched once. */
  function cloneOf(from: string, name: string): string {
    const into = join(folder, name)
    git(folder, 'clone', '--quiet', '--no-tags', from, into)
    run([process.execPath, 'install', '--frozen-lockfile'], into)
    mkdirSync(join(into, 'dist'))
    mkdirSync(join(root, 'dist/runtimes'), { recursive: true })
    symlinkSync(join(root, 'dist/runtimes'), join(into, 'dist/runtimes'))
    return into
  }
  const release = (cwd: string, ...words: string[]) =>
    run([process.execPath, 'run', 'release', ...words], cwd)

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'tollgate-test-whole-'))
    clone = cloneOf(root, 'one')
    const changelog = join(clone, 'CHANGELOG.md')
    const text = readFileSync(changelog, 'utf8')
    writeFileSync(
      changelog,
      text.replace('## Unreleased\n', '## Unreleased\n\n### Added\n\n- A rehearsal.\n'),
    )
    release(clone, '--prepare', VERSION)
    git(clone, 'add', '--all')
    git(clone, 'commit', '--quiet', '--message', 'a release')
    release(clone, '--dry-run', VERSION)
    made = join(clone, 'dist/release')
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('made again from another clone in another folder is the same, file by file', () => {
    expect(run(['sha256sum', '--check', '--strict', '--quiet', 'SHA256SUMS'], made)).toBe('')
    const other = cloneOf(clone, 'another-folder-with-a-longer-name')
    const said = release(other, '--verify', VERSION, '--sums', join(made, 'SHA256SUMS'))
    expect(said).toContain(`files are the same as in ${made}/SHA256SUMS`)
  })

  test('made again from another commit is not', () => {
    const other = cloneOf(clone, 'other')
    git(other, 'commit', '--quiet', '--allow-empty', '--message', 'another')
    const done = Bun.spawnSync(
      [process.execPath, 'run', 'release', '--verify', VERSION, '--sums', join(made, 'SHA256SUMS')],
      { cwd: other },
    )
    expect(done.exitCode).toBe(1)
    expect(done.stderr.toString()).toContain(
      `refused: tollgate-${VERSION}-linux-x64.tar.gz is another file\n`,
    )
  })

  describe.if(process.platform === 'linux' && process.arch === 'x64')(
    'installed by npm from its packages',
    () => {
      let user: string
      let env: Record<string, string>
      beforeAll(() => {
        user = join(folder, 'user')
        mkdirSync(join(user, 'bin'), { recursive: true })
        // Node and npm, and a shell for npm: no Bun.
        for (const name of ['node', 'npm', 'npx', 'sh'])
          symlinkSync(Bun.which(name) ?? name, join(user, 'bin', name))
        env = { PATH: join(user, 'bin'), HOME: user }
        const packages = [`tollgate-${VERSION}.tgz`, `tollgate-linux-x64-${VERSION}.tgz`]
        writeFileSync(join(user, 'package.json'), '{"private":true}')
        run(
          [
            'npm',
            'install',
            '--offline',
            '--no-audit',
            '--no-fund',
            ...packages.map((name) => join(made, 'npm', name)),
          ],
          user,
          env,
        )
      })

      test('it says its version without Bun', () => {
        const commit = git(clone, 'rev-parse', 'HEAD').slice(0, 12)
        expect(run(['npx', '--offline', 'tollgate', '--version'], user, env)).toBe(
          `tollgate ${VERSION} (commit ${commit})\n`,
        )
      })

      test('it serves, and stops clean on SIGTERM to the launcher', async () => {
        const port = await freePort()
        const server = Bun.spawn([join(user, 'bin/node'), 'node_modules/tollgate/bin/tollgate.js', 'serve'], {
          cwd: user,
          env: { ...env, PORT: String(port) },
          stdout: 'pipe',
          stderr: 'inherit',
        })
        let out = ''
        for await (const chunk of server.stdout) {
          out += new TextDecoder().decode(chunk)
          if (out.includes('Tollgate listens on') && !out.includes('"event":"stopping"') && !server.killed) {
            const { version } = (await (await fetch(`http://127.0.0.1:${port}/v1/liveness`)).json()) as {
              version: string
            } // as its schema says
            expect(version).toBe(VERSION)
            server.kill('SIGTERM')
          }
        }
        expect(await server.exited).toBe(0)
        expect(out).toContain('"event":"stopped"')
      })
    },
  )

  test.skipIf(Bun.which('qemu-aarch64-static') === null || !existsSync('/usr/aarch64-linux-gnu/lib'))(
    'has a program for arm64 that starts',
    () => {
      const program = join(folder, 'arm64')
      cpSync(join(made, 'image/arm64/tollgate'), program)
      chmodSync(program, 0o755)
      const said = run(['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu', program, '--version'], folder)
      expect(said).toStartWith(`tollgate ${VERSION} (commit `)
    },
  )
})
