import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { releasedChangelog } from '../../release/changelog.ts'
import { reasonsAgainst } from '../../release/checks.ts'
import { changedMigrations, recordMigrations } from '../../release/migrations.ts'
import { otherVersions, versionsIn, writeVersion } from '../../release/versions.ts'
import { outcomeOf } from '../support/outcome.ts'

/** A release is refused with a line for each reason. In small clones of their own, with real git. */
setDefaultTimeout(60_000)

const root = join(import.meta.dir, '../..')
const CHANGELOG = '# Changelog\n\n## Unreleased\n\n### Added\n\n- Something.\n'

/** A clone with one commit, of version 0.1.0 and one released migration. */
class Clone implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-test-release-'))

  static async make(): Promise<Clone> {
    const clone = new Clone()
    clone.git('init', '--quiet', '--initial-branch', 'main')
    clone.write(
      'package.json',
      `${JSON.stringify({ name: 'x', version: '0.1.0', devDependencies: { bun: Bun.version } }, null, 2)}\n`,
    )
    clone.write('README.md', '**Stability.** Version 0.1, before.\n')
    clone.write('docs/how-to/install.md', 'docker pull registry.example.com/tollgate:0.1.0\n')
    clone.write('CHANGELOG.md', CHANGELOG)
    clone.write('sql/0001_first.sql', 'create table a ();\n')
    mkdirSync(join(clone.folder, 'release'))
    await recordMigrations(clone.folder, '0.1.0')
    clone.commit()
    return clone
  }

  git(...words: string[]): void {
    const done = Bun.spawnSync(['git', '-c', 'user.name=t', '-c', 'user.email=t@example.com', ...words], {
      cwd: this.folder,
    })
    expect(done.exitCode, done.stderr.toString()).toBe(0)
  }
  write(name: string, text: string): void {
    mkdirSync(join(this.folder, name, '..'), { recursive: true })
    writeFileSync(join(this.folder, name), text)
  }
  read(name: string): string {
    return readFileSync(join(this.folder, name), 'utf8')
  }
  commit(): void {
    this.git('add', '--all')
    this.git('commit', '--quiet', '--message', 'x')
  }
  reasons(version = '0.1.0'): Promise<string[]> {
    return reasonsAgainst(this.folder, version)
  }
  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true })
  }
}

test('a clean clone with changes to tell of can be released', async () => {
  using clone = await Clone.make()
  expect(await clone.reasons()).toEqual([])
})

test('changes that are in no commit are named', async () => {
  using clone = await Clone.make()
  clone.write('README.md', '**Stability.** Version 0.1, changed.\n')
  clone.write('new.txt', '')
  expect(await clone.reasons()).toEqual(['the clone has changes that are in no commit: README.md, new.txt'])
})

test('a folder without git is refused: it has no commit', async () => {
  using clone = await Clone.make()
  rmSync(join(clone.folder, '.git'), { recursive: true })
  expect(await clone.reasons()).toEqual([expect.stringContaining('is no clone')])
})

test('each place with another version is named', async () => {
  using clone = await Clone.make()
  expect(await clone.reasons('0.2.0')).toEqual([
    'package.json:3 says 0.1.0, not 0.2.0',
    'README.md:1 says 0.1, not 0.2.0',
    'docs/how-to/install.md:1 says 0.1.0, not 0.2.0',
  ])
  expect(await clone.reasons('v0.1.0')).toEqual(['the version is v0.1.0; it must be like 0.2.0'])
})

test('nothing under "Unreleased" is refused, unless the version has its section already', async () => {
  using clone = await Clone.make()
  const empty = '# Changelog\n\n## Unreleased\n'
  clone.write('CHANGELOG.md', empty)
  clone.commit()
  expect(await clone.reasons()).toEqual([
    'CHANGELOG.md has no section "0.1.0 – <date>" and nothing under "Unreleased"',
  ])
  clone.write('CHANGELOG.md', `${empty}\n## 0.1.0 – 2026-11-28\n`)
  clone.commit()
  expect(await clone.reasons()).toEqual(['CHANGELOG.md lists no change under "0.1.0 – 2026-11-28"'])
  clone.write('CHANGELOG.md', `${empty}\n## 0.1.0 – 2026-11-28\n\n### Added\n\n- Something.\n`)
  clone.commit()
  expect(await clone.reasons()).toEqual([])
})

describe('a released migration', () => {
  let clone: Clone
  beforeEach(async () => {
    clone = await Clone.make()
  })
  afterEach(() => clone[Symbol.dispose]())

  test('that was edited is refused', async () => {
    clone.write('sql/0001_first.sql', 'create table a (id text);\n')
    clone.commit()
    expect(await clone.reasons()).toEqual([
      expect.stringContaining('sql/0001_first.sql was edited; it was released in 0.1.0'),
    ])
  })

  test('that is gone is refused', async () => {
    rmSync(join(clone.folder, 'sql/0001_first.sql'))
    clone.write('sql/0002_second.sql', '-- oldest server: 0.1\ncreate table b ();\n')
    clone.commit()
    expect(await clone.reasons()).toEqual([expect.stringContaining('sql/0001_first.sql is gone')])
  })

  test('that is not in the record is refused once the version has its section', async () => {
    clone.write('sql/0002_second.sql', '-- oldest server: 0.1\ncreate table b ();\n')
    clone.commit()
    expect(await clone.reasons()).toEqual([])
    clone.write('CHANGELOG.md', releasedChangelog(CHANGELOG, '0.1.0', '2026-11-28'))
    clone.commit()
    expect(await clone.reasons()).toEqual([
      'sql/0002_second.sql is not in release/migrations.json: bun run release --prepare 0.1.0',
    ])
  })
})

test('a version is made once: under its tag, and nowhere else', async () => {
  using clone = await Clone.make()
  clone.git('tag', 'v0.1.0')
  expect(await clone.reasons()).toEqual(['CHANGELOG.md has no section "0.1.0 – <date>"'])
  clone.write('more.txt', '')
  clone.commit()
  expect(await clone.reasons()).toEqual([
    expect.stringMatching(/^0\.1\.0 is released: its tag v0\.1\.0 is another commit, [0-9a-f]{12}$/),
  ])
})

test('another Bun is refused, because it makes other files', async () => {
  using clone = await Clone.make()
  clone.write('package.json', clone.read('package.json').replace(Bun.version, '1.0.0'))
  clone.commit()
  expect(await clone.reasons()).toEqual([
    `this is Bun ${Bun.version}; another one makes other files than Bun 1.0.0`,
  ])
})

test('a version that was prepared can be released, and keeps an empty "Unreleased"', async () => {
  using clone = await Clone.make()
  clone.write('sql/0002_second.sql', '-- oldest server: 0.1\ncreate table b ();\n')
  writeVersion(clone.folder, '0.2.0')
  clone.write('CHANGELOG.md', releasedChangelog(CHANGELOG, '0.2.0', '2026-11-28'))
  await recordMigrations(clone.folder, '0.2.0')
  clone.commit()
  clone.git('tag', 'v0.2.0')
  expect(await clone.reasons('0.2.0')).toEqual([])
  expect(clone.read('README.md')).toBe('**Stability.** Version 0.2, before.\n')
  expect(clone.read('docs/how-to/install.md')).toBe('docker pull registry.example.com/tollgate:0.2.0\n')
  expect(clone.read('CHANGELOG.md')).toBe(
    '# Changelog\n\n## Unreleased\n\n## 0.2.0 – 2026-11-28\n\n### Added\n\n- Something.\n',
  )
  expect(JSON.parse(clone.read('release/migrations.json'))).toMatchObject({
    '0001_first.sql': { since: '0.1.0' },
    '0002_second.sql': { since: '0.2.0' },
  })
})

describe('this clone', () => {
  test('says one version everywhere', () => {
    expect(otherVersions(root, packageJson.version)).toEqual([])
    const files = new Set(versionsIn(root).map(({ file }) => file))
    for (const file of ['package.json', 'README.md', 'Dockerfile', 'docs/how-to/install.md', 'docs/faq.md'])
      expect([...files]).toContain(file)
  })

  test('has every released migration as it was released', async () => {
    expect(await changedMigrations(root)).toEqual([])
  })
})

describe('bun run release', () => {
  const run = (...words: string[]) =>
    outcomeOf(
      Bun.spawn([process.execPath, 'release/main.ts', ...words], {
        cwd: root,
        stdout: 'pipe',
        stderr: 'pipe',
      }),
    )

  test('without a version, or with two things to do, is a usage error', async () => {
    for (const words of [
      [],
      ['--dry-run'],
      ['0.2.0'],
      ['--dry-run', '--verify', '0.2.0'],
      ['--publish', '0.2.0'],
    ])
      expect([words, await run(...words)]).toEqual([
        words,
        { code: 2, out: '', err: expect.stringContaining('usage: bun run release --prepare <version>') },
      ])
  })

  test('refuses with a line for each reason, and makes nothing', async () => {
    const { code, out, err } = await run('--dry-run', '99.0.0')
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain(`refused: package.json:3 says ${packageJson.version}, not 99.0.0\n`)
    expect(await run('--verify', '99.0.0', '--sums', 'nowhere')).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^refused: the sums cannot be read: /),
    })
    expect(await run('--prepare', 'next')).toMatchObject({
      code: 1,
      err: expect.stringContaining('like 0.2.0'),
    })
  })
})

test('what is recorded stays as it is when it is recorded again', async () => {
  const copy = mkdtempSync(join(tmpdir(), 'tollgate-test-record-'))
  try {
    cpSync(join(root, 'sql'), join(copy, 'sql'), { recursive: true })
    mkdirSync(join(copy, 'release'))
    await recordMigrations(copy, '0.0.0')
    const before = readFileSync(join(copy, 'release/migrations.json'), 'utf8')
    await recordMigrations(copy, '9.0.0')
    expect(readFileSync(join(copy, 'release/migrations.json'), 'utf8')).toBe(before)
    expect(await changedMigrations(copy)).toEqual([])
  } finally {
    rmSync(copy, { recursive: true })
  }
})
