import type { Config } from '../config.ts'
import type { AnySql } from '../db/connect.ts'
import type { DatabaseCondition } from '../db/guarded-pool.ts'
import type { Eraser } from '../erasure/eraser.ts'
import type { Clock } from '../lib/clock.ts'
import type { LimiterRouter } from '../limiter/threads/router.ts'
import type { Measures } from '../observe/measures.ts'
import type { Database } from '../records/database.ts'
import type { UsageRecorder } from '../usage/recorder.ts'
import type { Vault } from '../vault/vault.ts'
import type { CreditSpender } from '../verify/credits.ts'
import type { KeyLookup } from '../verify/lookup.ts'
import type { Namespaces } from './ratelimits/namespaces.ts'

/** What operations are carried out with. An operation names those that it uses: `Pick<Services, 'database' | 'clock'>`. */
export type Services = {
  readonly config: Pick<Config, 'windowMsMax'>
  readonly clock: Clock
  readonly sql: AnySql
  /** For what reads usage and the audit log: it may be slow, and has connections of its own to be slow on. */
  readonly history: AnySql
  readonly database: Database
  /** Whether it answers and takes writes; costs nothing while it does. */
  readonly databaseCondition: () => DatabaseCondition | Promise<DatabaseCondition>
  readonly keys: KeyLookup
  readonly limiter: LimiterRouter
  readonly credits: CreditSpender
  readonly usage: UsageRecorder
  readonly namespaces: Namespaces
  readonly vault: Vault
  readonly eraser: Eraser
  /** Counts what was decided, for metrics. */
  readonly measures: Pick<Measures, 'decided' | 'verified'>
}
