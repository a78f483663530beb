import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openDataDir } from '../../src/data-dir/data-dir.ts'
import { StartError } from '../../src/errors.ts'

setDefaultTimeout(60_000) // real threads, processes and databases

const scratch = mkdtempSync(join(tmpdir(), 'tollgate-data-dir-'))
afterAll(() => rmSync(scratch, { recursive: true }))

const freshPath = () => join(mkdtempSync(join(scratch, 'one-')), 'data')

/** A program that takes the given folder, prints its node id and waits to be killed. */
const HOLDER = `
  const { openDataDir } = await import(process.argv[1])
  const dir = openDataDir(process.argv[2], { exclusive: process.argv[3] === 'exclusive' })
  console.log(dir.nodeId, dir.secret('shared-secret', () => crypto.randomUUID()))
  setInterval(() => dir.path, 1000)
`

async function startHolder(path: string, mode: 'exclusive' | 'shared') {
  const source = join(import.meta.dir, '../../src/data-dir/data-dir.ts')
  const child = Bun.spawn([process.execPath, '-e', HOLDER, source, path, mode], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const { value } = await child.stdout.getReader().read()
  const [nodeId, secret] = new TextDecoder().decode(value).trim().split(' ')
  return {
    nodeId,
    secret,
    pid: child.pid,
    kill: async () => {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

/** Two servers on one embedded database would destroy it. The second must name the first. */
test('a second server on an exclusive folder is refused with a line that names the first one', async () => {
  const path = freshPath()
  const first = await startHolder(path, 'exclusive')
  try {
    expect(() => openDataDir(path, { exclusive: true })).toThrow(
      new StartError(
        `the data directory ${path} is in use by another server (process ${first.pid}); stop it, or set TOLLGATE_DATA_DIR to another folder`,
      ),
    )
  } finally {
    await first.kill()
  }
})

/** A supervisor restarts a killed server at once, while the system still removes the old process. */
test('a start waits for a dying server to release the folder', async () => {
  const path = freshPath()
  const dying = await startHolder(path, 'exclusive')
  const killer = Bun.spawn(['sh', '-c', `sleep 0.3; kill -9 ${dying.pid}`])
  using again = openDataDir(path, { exclusive: true })
  expect(again.nodeId).toBe(dying.nodeId as string) // printed by the holder
  expect(await killer.exited).toBe(0)
})

/** If the lock outlived its holder, an operator would have to remove it after every crash. */
test('the lock of a killed server is free at once, and its node id stays the same', async () => {
  const path = freshPath()
  for (let round = 0; round < 3; round++) {
    const killed = await startHolder(path, 'exclusive')
    await killed.kill()
    using again = openDataDir(path, { exclusive: true })
    expect(again.nodeId).toBe(killed.nodeId as string) // printed by the holder
  }
})

test('one process cannot hold an exclusive folder twice, but can again after closing it', () => {
  const path = freshPath()
  const first = openDataDir(path, { exclusive: true })
  expect(() => openDataDir(path, { exclusive: true })).toThrow(StartError)
  first.close()
  first.close()
  using again = openDataDir(path, { exclusive: true })
  expect(again.nodeId).toBe(first.nodeId)
})

/** Windows are stored by node: two servers with one id would overwrite each other's counts. */
test('servers that share a folder have different node ids, each the same after a restart', async () => {
  const path = freshPath()
  const first = openDataDir(path, { exclusive: false })
  const second = await startHolder(path, 'shared')
  expect(first.nodeId).toMatch(/^node_[1-9A-HJ-NP-Za-km-z]{10,}$/)
  expect(second.nodeId).not.toBe(first.nodeId)
  first.close()
  {
    using restarted = openDataDir(path, { exclusive: false })
    expect(restarted.nodeId).toBe(first.nodeId)
  }
  await second.kill()
  using one = openDataDir(path, { exclusive: false })
  using two = openDataDir(path, { exclusive: false })
  expect([one.nodeId, two.nodeId]).toEqual([first.nodeId, second.nodeId as string]) // printed by the holder
})

test('a secret is generated once and read ever after', () => {
  const path = freshPath()
  using dir = openDataDir(path, { exclusive: true })
  expect(dir.secret('root-key', () => 'first')).toBe('first')
  expect(dir.secret('root-key', () => 'second')).toBe('first')
  expect(readFileSync(join(path, 'root-key'), 'utf8')).toBe('first\n')
})

/** A reader of the folder could act as operator. */
test('only the owner can read the folder and its files', () => {
  const path = freshPath()
  using dir = openDataDir(path, { exclusive: true })
  dir.secret('root-key', () => 'text')
  expect(statSync(path).mode & 0o777).toBe(0o700)
  expect(statSync(join(path, 'root-key')).mode & 0o777).toBe(0o600)
})

/** Two servers that start together on a fresh folder must not use different secrets. */
test('servers that start at the same time agree on a secret', async () => {
  const path = freshPath()
  const holders = await Promise.all([1, 2, 3, 4].map(() => startHolder(path, 'shared')))
  expect(new Set(holders.map((holder) => holder.secret)).size).toBe(1)
  expect(new Set(holders.map((holder) => holder.nodeId)).size).toBe(4)
  expect(readdirSync(path).filter((name) => name.endsWith('.part'))).toEqual([])
  await Promise.all(holders.map((holder) => holder.kill()))
})

test('an empty secret file is an error that names the file, not an empty secret', () => {
  const path = freshPath()
  using dir = openDataDir(path, { exclusive: true })
  writeFileSync(join(path, 'vault-key'), '')
  expect(() => dir.secret('vault-key', () => 'text')).toThrow(`the file ${join(path, 'vault-key')} is empty`)
})

test('a folder that cannot be created is an error that names it', () => {
  const file = join(mkdtempSync(join(scratch, 'one-')), 'file')
  writeFileSync(file, '')
  expect(() => openDataDir(join(file, 'data'), { exclusive: true })).toThrow(
    `the data directory ${join(file, 'data')} cannot be created: a part of its path is a file, not a folder`,
  )
})

test('a secret that cannot be written is an error that names the file', () => {
  const path = freshPath()
  using dir = openDataDir(path, { exclusive: true })
  const unwritable = join(path, 'no-such-folder', 'secret')
  expect(() => dir.secret('no-such-folder/secret', () => 'text')).toThrow(unwritable)
})

/** Root may write anywhere, so this test needs another user. */
test.skipIf(process.getuid?.() === 0)('a read-only folder is an error that names the path', () => {
  const path = freshPath()
  mkdirSync(path)
  chmodSync(path, 0o500)
  try {
    expect(() => openDataDir(path, { exclusive: true })).toThrow(path)
  } finally {
    rmSync(path, { recursive: true })
  }
})
