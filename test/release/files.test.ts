import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import packageJson from '../../package.json' with { type: 'json' }
import { releasedDockerfile } from '../../release/image.ts'
import { readLock } from '../../release/lock.ts'
import { binaryArchive, launcherPackage, platformPackage } from '../../release/packages.ts'
import { runtimeOf } from '../../release/runtime.ts'
import { BUN_LICENCE, licenceOf, sbomOf } from '../../release/sbom.ts'
import { differencesOf, sign, sumsOf } from '../../release/sums.ts'
import { tarGz } from '../../release/tar.ts'
import { TARGETS } from '../../release/targets.ts'

/** What a release is made of, each file by itself, with the tools that read it. The whole is in whole.test.ts, at night. */
setDefaultTimeout(60_000)

const root = join(import.meta.dir, '../..')
const AT = Date.UTC(2026, 10, 28) / 1000
let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-files-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

const run = (words: string[], cwd = folder) => {
  const done = Bun.spawnSync(words, { cwd, env: { ...process.env, TZ: 'UTC' } })
  return { code: done.exitCode, out: done.stdout.toString(), err: done.stderr.toString() }
}
/** Unpacks an archive with the system's tar. @returns its folder. */
function unpack(name: string, bytes: Uint8Array): string {
  const into = join(folder, name)
  mkdirSync(into)
  writeFileSync(`${into}.tgz`, bytes)
  expect(run(['tar', '-xzf', `${into}.tgz`, '-C', into])).toEqual({ code: 0, out: '', err: '' })
  return into
}
const textOf = (...path: string[]) => readFileSync(join(...path), 'utf8')

describe('an archive', () => {
  const big = new Uint8Array(100_000).fill(7)
  const entries = [
    { path: 'a/program', bytes: big, isProgram: true },
    { path: 'a/empty', bytes: new Uint8Array() },
    { path: 'a/text', bytes: Buffer.from('text\n') },
  ]

  test('is what tar unpacks: contents, modes, no owner but root, the time that was given', () => {
    const into = unpack('archive', tarGz(entries, AT))
    expect(new Uint8Array(readFileSync(join(into, 'a/program')))).toEqual(big)
    expect([textOf(into, 'a/empty'), textOf(into, 'a/text')]).toEqual(['', 'text\n'])
    expect(statSync(join(into, 'a/program')).mode & 0o777).toBe(0o755)
    expect(statSync(join(into, 'a/text')).mode & 0o777).toBe(0o644)
    const listed = run(['tar', '--numeric-owner', '-tvzf', `${into}.tgz`]).out
    expect(listed.trim().split('\n')).toHaveLength(3)
    for (const line of listed.trim().split('\n')) expect(line).toMatch(/^-rw\S+ +0\/0 +\d+ 2026-11-28 00:00/)
  })

  test('has the same bytes each time, and no time of its own', () => {
    const bytes = tarGz(entries, AT)
    expect(Buffer.compare(bytes, tarGz(entries, AT))).toBe(0)
    expect([...bytes.slice(4, 8)]).toEqual([0, 0, 0, 0])
    expect(Buffer.compare(bytes, tarGz(entries, AT + 1))).not.toBe(0)
  })

  test('refuses a path that it would have to cut', () => {
    expect(() => tarGz([{ path: 'x'.repeat(101), bytes: big }], AT)).toThrow('too long for an archive')
  })
})

describe('the package of a platform', () => {
  const [first] = TARGETS

  test('is installed by npm on its platform alone, together with the launcher', () => {
    const manifests = TARGETS.map((target) => {
      const into = unpack(target.name, platformPackage(root, target, Buffer.from('binary'), AT))
      expect(textOf(into, 'package/bin/tollgate')).toBe('binary')
      expect(statSync(join(into, 'package/bin/tollgate')).mode & 0o777).toBe(0o755)
      return JSON.parse(textOf(into, 'package/package.json'))
    })
    for (const manifest of manifests) {
      expect(manifest).toMatchObject({ version: packageJson.version, license: packageJson.license })
      expect(manifest).not.toHaveProperty('scripts')
    }
    expect(
      manifests.map(({ name, os, cpu, libc, private: isPrivate }) => [name, os, cpu, libc, isPrivate]),
    ).toEqual([
      ['@tollgate/linux-x64', ['linux'], ['x64'], ['glibc'], undefined],
      ['@tollgate/linux-arm64', ['linux'], ['arm64'], ['glibc'], undefined],
      ['@tollgate/linux-x64-musl', ['linux'], ['x64'], ['musl'], undefined],
      ['@tollgate/linux-arm64-musl', ['linux'], ['arm64'], ['musl'], undefined],
      ['@tollgate/darwin-arm64', ['darwin'], ['arm64'], undefined, undefined],
      ['@tollgate/darwin-x64', ['darwin'], ['x64'], undefined, true], // not signed: npm refuses to publish it
    ])
  })

  test('and the launcher are the same each time', () => {
    const twice = () => [launcherPackage(root, AT), platformPackage(root, first, Buffer.from('b'), AT)]
    const [a, b] = [twice(), twice()]
    expect(a.map((each, index) => Buffer.compare(each, b[index] ?? each))).toEqual([0, 0])
  })

  test('the archive has one folder, named after version and platform', () => {
    const into = unpack('alone', binaryArchive(root, first, Buffer.from('binary'), AT))
    const top = join(into, `tollgate-${packageJson.version}-linux-x64`)
    expect(textOf(top, 'tollgate')).toBe('binary')
    expect(textOf(top, 'LICENSE')).toContain('Apache License')
  })
})

test('the Bun of a binary is the one of bun.lock, and another one is refused', () => {
  const lock = readLock(root)
  for (const { runtime } of TARGETS)
    expect(lock.packages.get(runtime)).toMatchObject({
      version: packageJson.devDependencies.bun,
      integrity: expect.stringMatching(/^sha512-/),
    })
  const [target] = TARGETS
  const kept = join(folder, 'runtimes')
  mkdirSync(kept)
  const tarball = `${target.name}-${packageJson.devDependencies.bun}.tgz`
  writeFileSync(join(kept, tarball), tarGz([{ path: 'package/bin/bun', bytes: Buffer.from('evil') }], AT))
  expect(() => runtimeOf(target, { lock, folder: kept, into: folder })).toThrow(
    `${tarball} is not the @oven/bun-linux-x64 of bun.lock`,
  )
  expect(existsSync(join(folder, target.name, 'package/bin/bun'))).toBe(false)
})

describe('the image beside the binaries', () => {
  const dockerfile = textOf(root, 'Dockerfile')
  const commit = 'c'.repeat(40)

  test('is the last stage of the Dockerfile, with the released binary of its architecture and the commit', () => {
    const lines = releasedDockerfile(dockerfile, commit).split('\n')
    const kept = dockerfile.slice(dockerfile.lastIndexOf('\nFROM ') + 1).split('\n')
    expect(lines.filter((line) => !kept.includes(line))).toEqual([
      expect.stringMatching(/^# .*docker buildx build/),
      'ARG TARGETARCH',
      `ARG COMMIT=${commit}`,
      'COPY --chmod=755 $TARGETARCH/tollgate /usr/local/bin/tollgate',
      'COPY --chown=nonroot:nonroot data /data',
    ])
    expect(kept.filter((line) => !lines.includes(line))).toEqual([
      'ARG COMMIT=unknown',
      expect.stringContaining('--from=build'),
      expect.stringContaining('--from=build'),
    ])
    expect(TARGETS.flatMap((each) => ('image' in each ? [each.image] : []))).toEqual(['amd64', 'arm64'])
  })

  test('a line that copies something unknown is refused, because it would be missing', () => {
    expect(() => releasedDockerfile(`${dockerfile}COPY --from=build /app/more /more\n`, commit)).toThrow(
      'does not know the line COPY --from=build /app/more /more',
    )
  })
})

describe('the SBOM', () => {
  let sbom: Awaited<ReturnType<typeof sbomOf>>
  beforeAll(async () => {
    sbom = await sbomOf(root, { atSeconds: AT })
  })

  test('is valid CycloneDX 1.6, strictly', async () => {
    const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6)
    expect(await validator.validate(JSON.stringify(sbom))).toBe(null)
    expect(await validator.validate(JSON.stringify({ ...sbom, unknown: 1 }))).not.toBe(null)
  })

  test('names Bun and every package whose code is in the binary, and no tool', () => {
    const named = sbom.components.map(({ group, name }) => (group === undefined ? name : `${group}/${name}`))
    const some = [
      'bun',
      '@electric-sql/pglite',
      '@sinclair/typebox',
      'elysia',
      'cookie',
      'msgpackr',
      'postgres',
    ]
    for (const name of some) expect(named).toContain(name)
    for (const name of ['typescript', 'msgpackr-extract', 'hono']) expect(named).not.toContain(name)
    expect(BUN_LICENCE).toBe(licenceOf(root, 'bun'))
  })

  /** The list is that of release/sbom.ts, which refuses another licence. */
  test('names a licence that asks only to be named for each', () => {
    const licences = new Set(
      sbom.components.flatMap(({ licenses }) => licenses.map((each) => each.expression)),
    )
    expect([...licences].sort()).toEqual(['Apache-2.0', 'BSD-3-Clause', 'BlueOak-1.0.0', 'MIT', 'Unlicense'])
  })

  test('is the same each time, and each reference in it leads to a component', async () => {
    expect(await sbomOf(root, { atSeconds: AT })).toEqual(sbom)
    const refs = new Set(sbom.dependencies.map(({ ref }) => ref))
    for (const component of [sbom.metadata.component, ...sbom.components])
      expect(refs).toContain(component['bom-ref'])
    const wanted = sbom.dependencies.flatMap((each) => ('dependsOn' in each ? each.dependsOn : []))
    expect(wanted.filter((ref) => !refs.has(ref))).toEqual([])
    expect(sbom.metadata.timestamp).toBe('2026-11-28T00:00:00.000Z')
  })
})

describe('SHA256SUMS', () => {
  let files: string
  let sums: string
  beforeAll(async () => {
    files = join(folder, 'sums')
    mkdirSync(join(files, 'npm'), { recursive: true })
    writeFileSync(join(files, 'b'), 'b')
    writeFileSync(join(files, 'npm/a'), 'a')
    sums = await sumsOf(files)
    writeFileSync(join(files, 'SHA256SUMS'), sums)
  })

  test('is what sha256sum reads, in a fixed order', () => {
    expect(run(['sha256sum', '--check', '--strict', 'SHA256SUMS'], files)).toEqual({
      code: 0,
      out: 'b: OK\nnpm/a: OK\n',
      err: '',
    })
  })

  test('of two releases are compared file by file', async () => {
    expect(differencesOf(sums, await sumsOf(files))).toEqual([])
    const other = sums.replace('  b\n', '  c\n').replace(/^[0-9a-f]{64} {2}npm/m, `${'0'.repeat(64)}  npm`)
    expect(differencesOf(other, sums)).toEqual([
      'b is not among the given sums',
      'c is not made from these sources',
      'npm/a is another file',
    ])
  })

  test.skipIf(Bun.which('minisign') === null)('is signed with minisign when a key is given', () => {
    const [key, pub] = [join(folder, 'key'), join(folder, 'key.pub')]
    expect(run(['minisign', '-G', '-W', '-p', pub, '-s', key]).code).toBe(0)
    sign(files, { key, version: '0.2.0' })
    const verified = run(['minisign', '-V', '-p', pub, '-m', 'SHA256SUMS'], files)
    expect(verified).toMatchObject({
      code: 0,
      out: expect.stringContaining('Trusted comment: tollgate 0.2.0'),
    })
    writeFileSync(join(files, 'SHA256SUMS'), `${sums}x`)
    expect(run(['minisign', '-V', '-p', pub, '-m', 'SHA256SUMS'], files).code).not.toBe(0)
  })
})
