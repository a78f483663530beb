import { expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { readConfig } from '../../src/config.ts'

/** No engine runs where the tests do, so what the container is made of is checked, and its steps are taken outside. */
setDefaultTimeout(180_000)

const root = join(import.meta.dir, '../..')
const lines = readFileSync(join(root, 'Dockerfile'), 'utf8').replaceAll('\\\n', ' ').split('\n')
const lastStage = lines.slice(lines.findLastIndex((line) => line.startsWith('FROM ')))
const argumentsOf = (name: string, from: string[]) =>
  from.filter((line) => line.startsWith(`${name} `)).map((line) => line.slice(name.length + 1))
const copied = argumentsOf('COPY', lines)
  .filter((line) => !line.startsWith('--from'))
  .flatMap((line) => line.split(' ').slice(0, -1))

test('it runs the Bun that was tested, as nobody special, and says how it is', () => {
  for (const image of argumentsOf('FROM', lines))
    expect(image).toStartWith(`oven/bun:${packageJson.devDependencies.bun}-`)
  expect(argumentsOf('USER', lastStage)).toEqual(['bun'])
  expect(argumentsOf('HEALTHCHECK', lastStage)[0]).toContain('/v1/liveness')
  expect(argumentsOf('VOLUME', lastStage)).toEqual(['/data'])
  const [variables = ''] = argumentsOf('ENV', lastStage)
  const config = readConfig(Object.fromEntries(variables.split(' ').map((each) => each.split('='))))
  expect(config.dataDir).toBe('/data')
  expect(config.listen.host).toBe('0.0.0.0')
  expect(argumentsOf('EXPOSE', lastStage)).toEqual([String(config.listen.port)])
})

test('what it copies is there, and nothing else is sent to the engine', () => {
  for (const path of copied) expect(existsSync(join(root, path))).toBe(true)
  const sent = readFileSync(join(root, '.dockerignore'), 'utf8').trim().split('\n')
  expect(sent.shift()).toBe('*')
  expect(sent.map((line) => line.slice(1)).sort()).toEqual([...new Set(copied)].sort())
})

/** A package that only tests have would be missed at the first start in the container. */
test('what it copies and installs is enough to start', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-container-'))
  try {
    for (const path of copied) cpSync(join(root, path), join(folder, path), { recursive: true })
    const [install = ''] = argumentsOf('RUN', lines)
    const installed = Bun.spawn(install.replace(/^bun /, `${process.execPath} `).split(' '), {
      cwd: folder,
      stdout: 'ignore',
      stderr: 'pipe',
    })
    const problems = await new Response(installed.stderr).text()
    expect({ code: await installed.exited, problems: problems.includes('error') }).toEqual({
      code: 0,
      problems: false,
    })
    const child = Bun.spawn([process.execPath, 'src/main.ts', 'serve'], {
      cwd: folder,
      env: { PATH: process.env.PATH ?? '', PORT: '0', TOLLGATE_DATA_DIR: join(folder, 'data') },
      stdout: 'pipe',
      stderr: 'inherit',
    })
    let output = ''
    let isAsked = false
    for await (const chunk of child.stdout) {
      output += new TextDecoder().decode(chunk)
      const url = /^Tollgate listens on (\S+)/m.exec(output)?.[1]
      if (url === undefined || isAsked) continue
      isAsked = true
      expect((await fetch(`${url}/v1/liveness`)).status).toBe(200)
      child.kill('SIGTERM')
    }
    expect(await child.exited).toBe(0)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
