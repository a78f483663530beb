import { expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { readConfig } from '../../src/config.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'

/**
 * There is no container engine in the tests. The parts of the container are checked, and its steps are run outside of one;
 * once, with the suite on the embedded database.
 */
setDefaultTimeout(180_000)

const root = join(import.meta.dir, '../..')
const lines = readFileSync(join(root, 'Dockerfile'), 'utf8').replaceAll('\\\n', ' ').split('\n')
const lastFrom = lines.findLastIndex((line) => line.startsWith('FROM '))
const [buildStage, lastStage] = [lines.slice(0, lastFrom), lines.slice(lastFrom)]
const argumentsOf = (name: string, from: string[]) =>
  from.filter((line) => line.startsWith(`${name} `)).map((line) => line.slice(name.length + 1))
/** Elements of a line with a list, such as `CMD ["serve"]`. */
const wordsOf = (name: string): string[] =>
  JSON.parse(/\[.*\]$/.exec(argumentsOf(name, lastStage)[0] ?? '')?.[0] ?? '[]')
const COMMIT = 'c'.repeat(40)
const copied = argumentsOf('COPY', buildStage).flatMap((line) => line.split(' ').slice(0, -1))
const variables = Object.fromEntries(
  argumentsOf('ENV', lastStage).flatMap((line) => line.split(' ').map((each) => each.split('='))),
)
/** The user id of `nonroot` in the image. */
const NOBODY = 65_532

test('it is built by the tested Bun, runs as an unprivileged user, and has a health check', () => {
  expect(argumentsOf('FROM', buildStage)).toEqual([
    `oven/bun:${packageJson.devDependencies.bun}-slim AS build`,
  ])
  expect(argumentsOf('FROM', lastStage)[0]).toEndWith(':nonroot')
  expect(argumentsOf('RUN', lastStage)).toEqual([]) // there is no shell to run anything
  expect(argumentsOf('USER', lastStage)).toEqual(['nonroot'])
  expect(argumentsOf('VOLUME', lastStage)).toEqual(['/data'])
  const config = readConfig(variables)
  expect(config.dataDir).toBe('/data')
  expect(config.listen.host).toBe('0.0.0.0')
  expect(argumentsOf('EXPOSE', lastStage)).toEqual([String(config.listen.port)])
})

test('its labels name version and commit, and its server names them too', () => {
  const labels = Object.fromEntries(
    argumentsOf('LABEL', lastStage).flatMap((line) => line.split(/ +/).map((each) => each.split('='))),
  )
  expect(labels).toEqual({
    'org.opencontainers.image.title': packageJson.name,
    'org.opencontainers.image.licenses': packageJson.license,
    'org.opencontainers.image.version': packageJson.version,
    'org.opencontainers.image.revision': '$COMMIT',
  })
  for (const stage of [buildStage, lastStage]) expect(argumentsOf('ARG', stage)).toEqual(['COMMIT=unknown'])
  expect(argumentsOf('RUN', buildStage)).toContain('bun run build --commit $COMMIT')
})

test('copied files exist, and nothing else is sent to the engine', () => {
  for (const path of copied) expect(existsSync(join(root, path))).toBe(true)
  const sent = readFileSync(join(root, '.dockerignore'), 'utf8').trim().split('\n')
  expect(sent.shift()).toBe('*')
  expect(sent.map((line) => line.slice(1)).sort()).toEqual([...new Set(copied)].sort())
})

/**
 * A package that only tests have, or a file that is not sent to the engine, would be missing at the first build or start.
 */
test.skipIf(TEST_DATABASE_URL !== null || !IS_NIGHTLY)(
  'its steps make a server that an unprivileged user can run, with a working health check',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-container-'))
    try {
      for (const path of copied) cpSync(join(root, path), join(folder, path), { recursive: true })
      for (const step of argumentsOf('RUN', buildStage)) {
        const words = step.replace('$COMMIT', COMMIT).replace(/^bun /, `${process.execPath} `).split(' ')
        const done = Bun.spawnSync(words, { cwd: folder, stdout: 'ignore', stderr: 'pipe' })
        expect({ step, code: done.exitCode, errors: /error/.test(done.stderr.toString()) }).toEqual({
          step,
          code: 0,
          errors: false,
        })
      }
      // The last stage: the binary, and a data directory of its user. Nothing else is readable.
      const image = join(folder, 'image')
      const data = join(image, 'data')
      mkdirSync(image)
      for (const [from = '', to = ''] of argumentsOf('COPY', lastStage).map((line) =>
        line.split(' ').slice(-2),
      ))
        cpSync(join(folder, from.replace('/app/', '')), join(image, to), { recursive: true })
      for (const path of [folder, image]) chmodSync(path, 0o755)
      const isRoot = process.getuid?.() === 0
      if (isRoot) chownSync(data, NOBODY, NOBODY)
      const asNobody =
        isRoot && Bun.which('setpriv') !== null
          ? ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups']
          : []

      const environment = {
        ...variables,
        HOST: '127.0.0.1',
        PORT: String(await freePort()),
        TOLLGATE_DATA_DIR: data,
      }
      const [program = ''] = wordsOf('ENTRYPOINT')
      const start = (words: string[]) =>
        Bun.spawn([...asNobody, join(image, 'usr/local/bin', program), ...words], {
          cwd: image,
          env: environment,
          stdout: 'pipe',
          stderr: 'pipe',
        })
      const [checker, ...check] = wordsOf('HEALTHCHECK')
      expect(checker).toBe(program)
      const isHealthy = async () => (await start(check).exited) === 0

      const version = await new Response(start(['--version']).stdout).text()
      expect(version).toBe(`tollgate ${packageJson.version} (commit ${COMMIT.slice(0, 12)})\n`)
      expect(await isHealthy()).toBe(false)
      const server = start(wordsOf('CMD'))
      let output = ''
      let wasAsked = false
      for await (const chunk of server.stdout) {
        output += new TextDecoder().decode(chunk)
        if (wasAsked || !output.includes('Tollgate listens on')) continue
        wasAsked = true
        expect(await isHealthy()).toBe(true)
        server.kill('SIGTERM')
      }
      expect({ code: await server.exited, errors: await new Response(server.stderr).text() }).toEqual({
        code: 0,
        errors: '',
      })
      expect(wasAsked).toBe(true)
      expect(await isHealthy()).toBe(false)
      if (asNobody.length > 0) expect(statSync(join(data, 'root-key')).uid).toBe(NOBODY)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
