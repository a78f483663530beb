import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { launcherPackage } from '../../release/packages.ts'
import { TARGETS } from '../../release/targets.ts'
import { outcomeOf } from '../support/outcome.ts'

/** The npm package `tollgate`, unpacked as npm does, run by Node, with a shell script in place of the binary. */
setDefaultTimeout(60_000)

const root = join(import.meta.dir, '../..')
const node = Bun.which('node') ?? 'node'
const musl = Bun.spawnSync([node, '-p', 'process.report.getReport().header.glibcVersionRuntime']).stdout
const own = `${process.platform}-${process.arch}${musl.toString().trim() === 'undefined' && process.platform === 'linux' ? '-musl' : ''}`
let folder: string
let launcher: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-launcher-'))
  const into = join(folder, 'node_modules/tollgate')
  mkdirSync(into, { recursive: true })
  writeFileSync(join(folder, 'tollgate.tgz'), launcherPackage(root, 0))
  const unpacked = Bun.spawnSync([
    'tar',
    '-xzf',
    join(folder, 'tollgate.tgz'),
    '-C',
    into,
    '--strip-components=1',
  ])
  expect(unpacked.exitCode).toBe(0)
  launcher = join(into, 'bin/tollgate.js')
})
afterAll(() => rmSync(folder, { recursive: true }))

/** Puts a script in place of a platform's binary. */
function install(script: string, platform = own): Disposable {
  const place = join(folder, 'node_modules/@tollgate', platform)
  mkdirSync(join(place, 'bin'), { recursive: true })
  writeFileSync(
    join(place, 'package.json'),
    JSON.stringify({ name: `@tollgate/${platform}`, version: '0.0.0' }),
  )
  writeFileSync(join(place, 'bin/tollgate'), `#!/bin/sh\n${script}\n`)
  chmodSync(join(place, 'bin/tollgate'), 0o755)
  return { [Symbol.dispose]: () => rmSync(place, { recursive: true }) }
}

const spawn = (words: string[] = [], preload: string[] = []) =>
  Bun.spawn([node, ...preload, launcher, ...words], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '' },
    stdin: new Blob(['what is typed\n']),
    stdout: 'pipe',
    stderr: 'pipe',
  })
const run = (words: string[] = [], preload: string[] = []) => outcomeOf(spawn(words, preload))

/** Node with another `process`, as on another machine. */
function elsewhere(code: string): string[] {
  const path = join(folder, `elsewhere-${Bun.hash(code)}.cjs`)
  writeFileSync(path, code)
  return ['--require', path]
}

test('words, input, output and the exit status are the program’s own', async () => {
  using _ = install('read line; echo "$# $1 $2 $line $BUN_IDLE_GC_SECONDS"; echo problem >&2; exit 7')
  expect(await run(['key verify', '--json'])).toEqual({
    code: 7,
    out: '2 key verify --json what is typed 300\n',
    err: 'problem\n',
  })
})

test.each(['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const)(
  '%s is passed on, and the program ends as it likes',
  async (signal) => {
    using _ = install(
      `trap 'echo stopped; exit 3' ${signal.slice(3)}; echo ready; while :; do sleep 0.02; done`,
    )
    const child = spawn()
    let out = ''
    for await (const chunk of child.stdout) {
      out += new TextDecoder().decode(chunk)
      if (out === 'ready\n') child.kill(signal)
    }
    expect({ code: await child.exited, out }).toEqual({ code: 3, out: 'ready\nstopped\n' })
  },
)

test('a program that a signal ends, ends the launcher by the same signal', async () => {
  using _ = install('kill -9 $$')
  const child = spawn()
  await child.exited
  expect(child.signalCode).toBe('SIGKILL')
})

test('without the package of this machine it says which one is missing, in one line', async () => {
  expect(await run(['--version'])).toEqual({
    code: 1,
    out: '',
    err: `tollgate: the package @tollgate/${own} is missing; install again, with optional dependencies (npm install --include=optional)\n`,
  })
})

test('a program that cannot be started is one line too', async () => {
  using _ = install('')
  chmodSync(join(folder, 'node_modules/@tollgate', own, 'bin/tollgate'), 0o644)
  expect(await run()).toEqual({
    code: 1,
    out: '',
    err: expect.stringMatching(/^tollgate: @tollgate\/\S+ cannot be started: .*EACCES\n$/),
  })
})

test('on a machine without a release it names those that have one', async () => {
  const other = elsewhere("Object.defineProperty(process, 'arch', { value: 'mips' })")
  const { code, err } = await run([], other)
  expect({ code, lines: err.split('\n').length }).toEqual({ code: 1, lines: 2 })
  expect(err).toStartWith('tollgate: there is no Tollgate for ')
  expect(err).toContain(
    '; there is for linux-x64, linux-arm64, linux-x64-musl, linux-arm64-musl, darwin-arm64\n',
  )
})

test('where the C library is musl it takes the package for that', async () => {
  using _ = install('echo for musl', 'linux-x64-musl')
  const alpine = elsewhere(`
    for (const [name, value] of [['platform', 'linux'], ['arch', 'x64']]) Object.defineProperty(process, name, { value })
    process.report.getReport = () => ({ header: {} })`)
  expect(await run([], alpine)).toEqual({ code: 0, out: 'for musl\n', err: '' })
})

test('the package asks for each published one in its own version, and runs nothing at an install', async () => {
  const manifest = await Bun.file(join(folder, 'node_modules/tollgate/package.json')).json()
  const published = TARGETS.filter((each) => !('isUnsigned' in each)).map(({ name }) => `@tollgate/${name}`)
  expect(manifest.optionalDependencies).toEqual(
    Object.fromEntries(published.map((name) => [name, packageJson.version])),
  )
  expect(manifest).toMatchObject({
    name: 'tollgate',
    version: packageJson.version,
    engines: { node: '>=18' },
  })
  for (const name of ['scripts', 'dependencies', 'private']) expect(manifest).not.toHaveProperty(name)
})
