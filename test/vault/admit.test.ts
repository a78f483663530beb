import { afterAll, beforeAll, beforeEach, expect, setDefaultTimeout, test } from 'bun:test'
import { lockStart } from '../../src/db/settings.ts'
import { newId, type WorkspaceId } from '../../src/lib/ids.ts'
import { admitVault, type VaultAdmission } from '../../src/vault/admit.ts'
import { resealDataKeys } from '../../src/vault/reseal.ts'
import { findCheck, findDataKey, loseDataKeys } from '../../src/vault/store.ts'
import { importMaster, type SealedKey, Vault } from '../../src/vault/vault.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())
beforeEach(async () => {
  const { sql } = database
  await sql`delete from vault_check`
  await sql`delete from vault_data_keys`
  await sql`delete from vault_lost_data_keys`
})

const key = (name: string) => new Uint8Array(Buffer.alloc(32, name))
const idOf = async (name: string) => (await importMaster(key(name))).id

/** A start with these vault keys. */
const start = (names: string[], { isLost = false } = {}): Promise<VaultAdmission> =>
  database.sql.begin(async (tx) => {
    await lockStart(tx)
    const given = { keys: names.map(key), from: 'TOLLGATE_VAULT_KEY', generate: () => [] }
    return await admitVault(tx, given, { isLost, now: Date.now() })
  })
const refusal = (names: string[]) =>
  start(names).then(
    () => null,
    (cause: Error) => cause.message,
  )
const vaultWith = (...names: string[]) =>
  new Vault(database.sql, { vaultKeys: names.map(key), clock: Date.now })
const reseal = async (...names: string[]) => {
  const masters = await Promise.all(names.map((name) => importMaster(key(name))))
  return await database.sql.begin((tx) => resealDataKeys(tx, masters, Date.now()))
}
async function newWorkspace(): Promise<WorkspaceId> {
  const id = newId('ws') as WorkspaceId // as authenticate() would mint it
  await database.sql`insert into workspaces (id, name, created_at) values (${id}, 'vault', 0)`
  return id
}
/** A recoverable key that a server with this vault key sealed. */
async function sealedBy(name: string, workspaceId: WorkspaceId): Promise<SealedKey & { id: string }> {
  const [sealed] = await vaultWith(name).seal(workspaceId, [{ keyId: newId('key'), plaintext: 'the text' }])
  if (sealed === undefined) throw new Error('nothing was sealed')
  return { ...sealed, id: sealed.keyId }
}
const shown = async (workspaceId: WorkspaceId, row: SealedKey & { id: string }, ...names: string[]) =>
  (await vaultWith(...names).open(workspaceId, [row])).get(row.keyId)
const checkedBy = async () => (await findCheck(database.sql))?.vaultKeyId ?? null

test('a start with another vault key is refused with the ids of both, and changes nothing', async () => {
  expect(await start(['a'])).toMatchObject({ missing: [], lost: null })
  const before = await findCheck(database.sql)
  const line = await refusal(['b'])
  expect(line).toContain(
    `sealed by vault key ${await idOf('a')}, and TOLLGATE_VAULT_KEY holds ${await idOf('b')}`,
  )
  expect(line).toContain('TOLLGATE_VAULT_LOST=1')
  for (const secret of [key('a'), key('b')])
    expect(line).not.toContain(Buffer.from(secret).toString('base64'))
  expect(line).not.toContain('\n')
  expect(await findCheck(database.sql)).toEqual(before)
  expect(await start(['a'])).toMatchObject({ missing: [] })
})

test('a database without a vault key gets its check from the first start that has one', async () => {
  expect(await start([])).toEqual({ vaultKeys: [], missing: [], lost: null })
  expect(await checkedBy()).toBeNull()
  await start(['a'])
  expect(await checkedBy()).toBe(await idOf('a'))
  // Without any vault key recoverable keys are refused one by one, and the start is told.
  expect(await start([])).toMatchObject({ missing: [await idOf('a')] })
  expect(await checkedBy()).toBe(await idOf('a'))
})

test('where data keys are older than the check, the first start must open one', async () => {
  const workspaceId = await newWorkspace()
  await sealedBy('a', workspaceId)
  expect(await refusal(['b'])).toContain(await idOf('a'))
  expect(await checkedBy()).toBeNull()
  await start(['a'])
  expect(await checkedBy()).toBe(await idOf('a'))
})

test('of starts at once with different vault keys, those with the first one go on', async () => {
  const outcomes = await Promise.all(
    ['a', 'b', 'a', 'b'].map(async (name) => ({
      name,
      id: await idOf(name),
      refused: await refusal([name]),
    })),
  )
  const first = await checkedBy()
  for (const { id, refused } of outcomes) expect(refused === null).toBe(id === first)
})

test('the vault key is changed in three steps, and a server of each step may start at any time', async () => {
  const workspaceId = await newWorkspace()
  const row = await sealedBy('old', workspaceId)
  await start(['old'])
  await start(['new', 'old'])
  // A server that was not given the new one yet.
  await sealedBy('new', await newWorkspace())
  expect(await start(['old'])).toMatchObject({ missing: [await idOf('new')] })
  expect(await refusal(['new'])).toContain(await idOf('old')) // dropped before the reseal
  expect(await reseal('new', 'old')).toEqual({ resealed: 1, total: 2 })
  expect(await start(['new'])).toMatchObject({ missing: [] })
  expect(await shown(workspaceId, row, 'new')).toBe('the text')
  expect(await refusal(['old'])).toContain(await idOf('new'))
})

test('a server of the release before may have sealed everything anew: the check follows', async () => {
  const workspaceId = await newWorkspace()
  await sealedBy('old', workspaceId)
  await start(['old'])
  await reseal('new', 'old')
  const { sql } = database
  // What that server left: it does not know the check.
  await sql`delete from vault_check`
  await sql`insert into vault_check (sealed, vault_key_id, created_at) values ('v1.x', ${await idOf('old')}, 0)`
  expect(await start(['new'])).toMatchObject({ missing: [await idOf('old')], lost: null })
  expect(await checkedBy()).toBe(await idOf('new'))
})

test('a check that is damaged is not opened, one of a newer release is left alone', async () => {
  await start(['a'])
  await database.sql`update vault_check set sealed = 'v1.AAAA'`
  expect(await refusal(['a'])).toContain('cannot open it')
  await database.sql`update vault_check set sealed = 'v2.AAAA'`
  await start(['a'])
  expect((await findCheck(database.sql))?.sealed).toBe('v2.AAAA')
})

test('a vault key that is declared lost costs the texts of its keys alone, until it is found', async () => {
  const [workspaceId, other] = [await newWorkspace(), await newWorkspace()]
  const old = await sealedBy('old', workspaceId)
  const kept = await sealedBy('kept', other)
  await start(['kept', 'old'])
  expect(await start(['kept', 'new'], { isLost: true })).toMatchObject({
    missing: [],
    lost: { vaultKeyIds: [await idOf('old')], dataKeys: 1 },
  })
  await start(['kept', 'new']) // the variable is needed once
  expect(await shown(other, kept, 'kept', 'new')).toBe('the text')
  await expect(shown(workspaceId, old, 'kept', 'new')).rejects.toMatchObject({ code: 'PRECONDITION_FAILED' })
  const made = await sealedBy('new', workspaceId)
  expect(await shown(workspaceId, made, 'new')).toBe('the text')
  // It was found: given again it opens, and after a reseal it is not needed any more.
  expect(await shown(workspaceId, old, 'new', 'old')).toBe('the text')
  expect(await reseal('new', 'kept')).toEqual({ resealed: 1, total: 2 })
  await expect(shown(workspaceId, old, 'new')).rejects.toMatchObject({ code: 'PRECONDITION_FAILED' })
  expect(await reseal('new', 'old')).toEqual({ resealed: 1, total: 3 })
  expect(await shown(workspaceId, old, 'new')).toBe('the text')
  expect(await shown(workspaceId, made, 'new')).toBe('the text')
})

test('TOLLGATE_VAULT_LOST does nothing where nothing is lost, and nothing without a vault key', async () => {
  const workspaceId = await newWorkspace()
  const row = await sealedBy('a', workspaceId)
  expect(await start(['a'], { isLost: true })).toMatchObject({ missing: [], lost: null })
  expect(await start([], { isLost: true })).toMatchObject({ missing: [await idOf('a')], lost: null })
  expect((await findDataKey(database.sql, workspaceId))?.id).toBe(row.encryptionKeyId)
})

test('a generated vault key is made once, and never in place of one that is missing', async () => {
  const generated = (isLost = false) =>
    database.sql.begin((tx) =>
      admitVault(
        tx,
        { keys: null, from: 'the file /data/vault-key', generate: () => [key('generated')] },
        { isLost, now: 0 },
      ),
    )
  expect((await generated()).vaultKeys).toEqual([key('generated')])
  await database.sql`delete from vault_check`
  await start(['a'])
  await expect(generated()).rejects.toThrow(
    `the file /data/vault-key is missing, which holds vault key ${await idOf('a')}`,
  )
  expect(await generated(true)).toMatchObject({ lost: { vaultKeyIds: [await idOf('a')], dataKeys: 0 } })
})

test('data keys that are put aside keep their age', async () => {
  const workspaceId = await newWorkspace()
  await sealedBy('a', workspaceId)
  const { sql } = database
  const [before] = await sql`select id, created_at, sealed from vault_data_keys`
  expect(await loseDataKeys(sql, [await idOf('b')], 5)).toBe(1)
  expect([...(await sql`select id, created_at, sealed, lost_at from vault_lost_data_keys`)]).toEqual([
    { ...before, lost_at: 5 },
  ])
})
