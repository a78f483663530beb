import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { requireDatabase } from '../db/settings.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import type { Engine, EngineSetup, Exchange, Failed, Fault, Result } from './engine.ts'
import { wrongWith } from './exchange-check.ts'
import { deleteEndedWindows, synchronousCommit, takeFromWindows } from './store.ts'

/**
 * The engine in the database that the servers share anyway. One exchange is one statement on a connection of its own.
 *
 * It forgets nothing that it has answered, so it never learns. Changes are additions: a message is sent once and never again,
 * and what an answer gave that did not come counts as spent. After a fault the connection is dropped, because what was sent on
 * it may still be carried out; the next exchange opens another, and first asks whether it leads to the same database.
 *
 * Windows that are over are deleted some at a time, by all servers.
 */
export class PostgresEngine implements Engine {
  readonly kind = 'postgres'
  readonly buckets = 1
  /** The connection, once it leads to the right database. It is opened for the first exchange, and again after a fault. */
  private sql: Sql | null = null
  private opening: Promise<Sql> | null = null
  private fail: ((fault: Fault, cause: Error) => void) | null = null
  private isClosed = false
  /** The last cell that the cleaning has looked at; null = it begins again. */
  private cleanedTo: string | null = null
  private readonly cancelCleaning: () => void

  constructor(
    private readonly address: DatabaseAddress,
    private readonly setup: Pick<EngineSetup, 'timeoutMs'>,
    private readonly timers: Timers = systemTimers,
  ) {
    this.cancelCleaning = timers.every(CLEAN_MS, () => void this.clean())
  }

  exchange(exchange: Exchange): Promise<Result> {
    const wrong = this.isClosed ? 'the engine is closed' : wrongWith(exchange, this.buckets)
    if (wrong !== null) return Promise.reject(new Error(wrong))
    if (this.fail !== null) return Promise.reject(new Error('an exchange of bucket 0 is under way'))
    return new Promise((resolve) => {
      let isSent = false
      const settle = (result: Result) => {
        if (this.fail !== fail) return
        this.fail = null
        cancel()
        if (result.kind === 'failed' && isSent) this.drop()
        resolve(result)
      }
      const fail = (fault: Fault, cause: Error) => settle({ kind: 'failed', fault, cause })
      this.fail = fail
      const { timeoutMs } = this.setup
      const cancel = this.timers.after(timeoutMs, () =>
        fail(
          isSent ? 'late' : 'away',
          new Error(`no ${isSent ? 'answer' : 'connection'} within ${timeoutMs} ms`),
        ),
      )
      const failedBy = (cause: unknown) =>
        fail(isSent ? 'broken' : 'away', cause instanceof Error ? cause : new Error(String(cause)))
      this.connection()
        .then(async (sql) => {
          if (this.fail !== fail) return // nobody waits any more
          isSent = true
          settle(await take(sql, exchange))
        })
        .catch(failedBy)
    })
  }

  /** The database is the fleet's own: who reads its rows belongs to the fleet. */
  claim(fleetId: string): Promise<{ kind: 'claimed'; fleetId: string } | Failed> {
    return Promise.resolve({ kind: 'claimed', fleetId })
  }

  /** None: another database refuses to be used before this is asked. */
  async found(): Promise<{ kind: 'found'; fleetId: string | null } | Failed> {
    try {
      await this.connection()
      return { kind: 'found', fleetId: null }
    } catch (cause) {
      return {
        kind: 'failed',
        fault: 'away',
        cause: cause instanceof Error ? cause : new Error(String(cause)),
      }
    }
  }

  async warnings(): Promise<string[]> {
    const setting = await this.connection()
      .then(synchronousCommit)
      .catch(() => 'on')
    if (setting === 'on' || setting.startsWith('remote_')) return []
    return [
      `synchronous_commit of the database is ${setting}, so a crash of Postgres may forget what it answered. For shared limits Tollgate switches it on where it is off.`,
    ]
  }

  async close(): Promise<void> {
    this.isClosed = true
    this.cancelCleaning()
    this.fail?.('away', new Error('the engine is closed'))
    this.drop()
  }

  /** Looks at the next cells and deletes those that are over. Not while an exchange is under way, which would wait for it. */
  async clean(): Promise<void> {
    const { sql } = this
    if (sql === null || this.fail !== null) return
    try {
      this.cleanedTo = await deleteEndedWindows(sql, { after: this.cleanedTo, rowsMax: CLEAN_ROWS })
    } catch {
      // The connection has broken: the next exchange says so.
    }
  }

  /** Goes on behind the back of an exchange that is given up: opening one may take longer than an exchange. */
  private connection(): Promise<Sql> {
    this.opening ??= this.open()
    return this.opening
  }

  private async open(): Promise<Sql> {
    const onClose = () => {
      if (this.sql === sql) this.drop() // the driver would open another by itself
    }
    const sql = connect(this.address, { connectionsMax: 1, onClose })
    try {
      await within(this.timers, OPEN_MS, requireDatabase(sql, this.address))
      if (this.isClosed) throw new Error('the engine is closed')
      this.sql = sql
      return sql
    } catch (cause) {
      this.opening = null
      void sql.end({ timeout: 0 }).catch(() => {}) // it is broken already
      throw cause
    }
  }

  private drop(): void {
    const { sql } = this
    if (sql === null) return
    this.sql = null
    this.opening = null
    void sql.end({ timeout: 0 }).catch(() => {}) // as above
  }
}

async function take(sql: Sql, exchange: Exchange): Promise<Result> {
  const answers = exchange.entries.length === 0 ? [] : await takeFromWindows(sql, exchange)
  return { kind: 'answered', isLearning: false, learning: 0, answers }
}

const OPEN_MS = 5_000
const CLEAN_MS = 1_000
const CLEAN_ROWS = 1_000
