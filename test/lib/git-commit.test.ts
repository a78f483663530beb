import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { commitOf } from '../../src/lib/git-commit.ts'
import { COMMIT } from '../../src/lib/version.ts'

/** Against git itself: each way in which a clone says what is checked out. */
let folder: string
const git = (...words: string[]) => {
  const done = Bun.spawnSync(['git', '-c', 'user.name=t', '-c', 'user.email=t@example.com', ...words], {
    cwd: folder,
  })
  expect(done.exitCode, done.stderr.toString()).toBe(0)
  return done.stdout.toString().trim()
}

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-commit-'))
  git('init', '--quiet', '--initial-branch', 'main')
  writeFileSync(join(folder, 'a'), 'a')
  git('add', 'a')
  git('commit', '--quiet', '--message', 'one')
})
afterAll(() => rmSync(folder, { recursive: true }))

test('the commit of a branch is found, loose or packed', () => {
  const commit = git('rev-parse', 'HEAD')
  expect(commitOf(folder)).toBe(commit)
  git('pack-refs', '--all')
  expect(commitOf(folder)).toBe(commit)
})

test('the commit of a work tree beside the clone and of a detached head is found', () => {
  const beside = join(folder, 'beside')
  git('worktree', 'add', '--quiet', '-b', 'other', beside)
  expect(commitOf(beside)).toBe(git('rev-parse', 'other'))
  git('-C', beside, 'checkout', '--quiet', '--detach')
  expect(commitOf(beside)).toBe(git('rev-parse', 'other'))
})

/** The folder of an unpacked archive may lie in somebody else's clone. */
test('a folder that is no clone has no commit', () => {
  const inside = mkdtempSync(join(folder, 'inside-'))
  expect(commitOf(inside)).toBe(null)
  writeFileSync(join(inside, '.git'), 'gitdir: /nowhere')
  expect(commitOf(inside)).toBe(null)
})

test('the program run from a clone names the commit of the clone', () => {
  const commit = commitOf(join(import.meta.dir, '../..'))
  expect(COMMIT).toBe(commit?.slice(0, 12) ?? 'unknown')
})
