import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTestSql } from '../support/database.ts'
import { Balancer } from './balancer.ts'
import { previousRelease } from './previous.ts'

/** A database as the release before made it, with servers of both releases. */
export async function openBoth() {
  const previous = await previousRelease()
  const closing = new AsyncDisposableStack()
  const database = closing.use(await openTestSql())
  await database.sql`drop schema public cascade`
  await database.sql`create schema public`
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-upgrade-'))
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  if (database.address.kind !== 'url') throw new Error('the tests run on Postgres')
  const url = database.address.url
  const env = (name: string) => ({
    DATABASE_URL: url,
    TOLLGATE_DATA_DIR: join(folder, name),
    TOLLGATE_FLUSH_MS: '200',
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '1',
    // Long, because a slow machine is not an outage.
    TOLLGATE_DB_TIMEOUT_MS: '20000',
  })
  const balancer = new Balancer()
  closing.defer(async () => {
    await Promise.all(balancer.members.map(({ process }) => process[Symbol.asyncDispose]()))
  })
  return {
    ...database,
    balancer,
    previous,
    /** Each has a data directory of its own, which a successor of the same name gets. */
    start: {
      old: (name: string) => balancer.add(`old ${name}`, env(name), { main: join(previous, 'src/main.ts') }),
      new: (name: string) => balancer.add(`new ${name}`, env(name)),
    },
    env,
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  }
}

/**
 * The folder of the release after this one: the files of this one, and some that live with both.
 * @param more Further files, by name.
 */
export function nextRelease(more: Record<string, string> = {}): { folder: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-next-'))
  cpSync(join(import.meta.dir, '../../sql'), folder, { recursive: true })
  const files = {
    '9001_later.sql':
      '-- oldest server: 0.1\nalter table keys add column added_later text; create table made_later (id text primary key);',
    '9002_index.sql':
      '-- oldest server: 0.1\n-- transaction: none\ncreate index concurrently keys_by_later on keys (start, id);',
    ...more,
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  return { folder, [Symbol.dispose]: () => rmSync(folder, { recursive: true }) }
}
