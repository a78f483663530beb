import { randomUUID } from 'node:crypto'
import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import { type RescuedKey, rescueOperatorKey } from '../api/root-keys/rescue-operator-key.ts'
import { type Config, readConfig } from '../config.ts'
import { GuardedPool } from '../db/guarded-pool.ts'
import { planMigrations } from '../db/migrate.ts'
import { StartError } from '../errors.ts'
import { VERSION } from '../lib/version.ts'
import { configureLog } from '../log.ts'
import { Database } from '../records/database.ts'
import { Invalidations } from '../records/invalidations.ts'
import type { Command } from './arguments.ts'
import { type DatabaseHere, withDatabase } from './database-here.ts'
import { UsageError } from './usage-error.ts'

export const rootKeyRescueCommand: Command = {
  name: 'root-key rescue',
  isLocal: true,
  about:
    'make an operator root key with access to the database, when the last one is lost; the root key itself is shown only once',
  options: {
    replace: { value: null, about: 'also disable every other operator root key' },
    save: {
      value: null,
      about: 'write it into the data dir, where commands on this machine find it, instead of printing it',
    },
  },
  example: 'root-key rescue --save',
  async run(given) {
    configureLog({ level: 'warn', isPretty: false })
    const config = readConfig(given.terminal.environment)
    const isReplacing = given.has('replace')
    const file = given.has('save') ? new KeyFile(config) : null
    const made = await withDatabase(config, { mayShare: true, mayCreate: false }, async (here) => {
      if (here.isShared && isReplacing)
        throw new UsageError(
          `--replace needs the server on ${config.dataDir} stopped: it would go on accepting the old root keys`,
          {
            hint: 'or leave out --replace, and use the new root key: tollgate root-key update <id> --disable',
          },
        )
      await requireSchema(here)
      return await rescueIn(here, {
        isReplacing,
        by: `tollgate root-key rescue ${VERSION} on ${hostname()}`,
        now: given.now,
        save: (secret) => file?.write(secret),
      }).catch((cause: unknown) => {
        file?.remove()
        throw cause
      })
    })
    file?.keep()
    const { id, secret, disabled } = made
    const old = disabled.length === 0 ? '' : `\ndisabled: ${disabled.join(' ')}`
    given.print(`${file === null ? secret : `The operator root key is in ${file.path}`}\n(id ${id})${old}`, {
      rootKeyId: id,
      ...(file === null ? { rootKey: secret } : { rootKeyFile: file.path }),
      disabled,
    })
  },
}

/** Servers on a Postgres of their own hear of the change by NOTIFY. */
async function rescueIn(
  { address }: DatabaseHere,
  options: Parameters<typeof rescueOperatorKey>[1],
): Promise<RescuedKey> {
  const pool = new GuardedPool(address, { connectionsMax: 1, timeoutMs: 30_000 })
  const invalidations = new Invalidations({ processId: randomUUID(), confirmTimeoutMs: 1000 })
  try {
    return await rescueOperatorKey(
      new Database(pool, invalidations, { notifies: address.kind === 'url' }),
      options,
    )
  } finally {
    await pool.end({ timeout: 2 })
  }
}

/** @throws StartError when the tables are not those of this release. */
async function requireSchema({ sql }: DatabaseHere): Promise<void> {
  const pending = (await planMigrations(sql)).filter(({ phase }) => phase === 'expand')
  if (pending.length > 0)
    throw new StartError(
      `the database lacks migrations of this release (${pending[0]?.name}, …); use the release that runs on it, or run tollgate migrate first`,
    )
}

/** The file with the root key, which takes the place of an earlier one only once the root key works. */
class KeyFile {
  readonly path: string
  readonly #part: string

  constructor({ dataDir }: Config) {
    this.path = join(dataDir, 'root-key')
    this.#part = `${this.path}.${randomUUID()}.part`
  }

  write(text: string): void {
    mkdirSync(dirname(this.path), { recursive: true, mode: 0o700 })
    writeFileSync(this.#part, `${text}\n`, { mode: 0o600, flag: 'wx', flush: true })
    chmodSync(this.#part, 0o600)
  }

  keep(): void {
    renameSync(this.#part, this.path)
  }

  remove(): void {
    rmSync(this.#part, { force: true })
  }
}
