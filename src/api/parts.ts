import type { Config } from '../config.ts'
import type { AnySql } from '../db/connect.ts'
import type { DatabaseCondition } from '../db/guarded-pool.ts'
import type { Eraser } from '../erasure/eraser.ts'
import type { Clock } from '../lib/clock.ts'
import type { LimiterRouter } from '../limiter/threads/router.ts'
import type { Measures } from '../observe/measures.ts'
import type { Recall, Recent } from '../recent/recent.ts'
import type { Database } from '../records/database.ts'
import type { Answer, Question } from '../records/questions.ts'
import type { Sweeper } from '../sweep/sweeper.ts'
import type { UsageRecorder } from '../usage/recorder.ts'
import type { Vault } from '../vault/vault.ts'
import type { CreditSpender } from '../verify/credits.ts'
import type { KeyLookup } from '../verify/lookup.ts'
import type { Standing } from '../verify/standing.ts'
import type { CreateAnswers } from './idempotency/answers.ts'
import type { Namespaces } from './ratelimits/namespaces.ts'
import type { StatusSample } from './server/status-history.ts'

/** `nodeId` is of the data directory and outlives a restart; `processId` is new at each start. */
export type ServerSelf = { nodeId: string; processId: string; host: string }

/** What this server answers about the key with a hash, and what the others do. */
export type Asked = {
  /** The worst of all HTTP threads; null = one cannot say, and none accepts it. */
  own: Standing | null
  /** `busy`: too much is being asked. `deaf`: this server hears no answers, as it polls for changes. */
  others: Answer[] | 'busy' | 'deaf'
}

/** Services that operations use. An operation names those it needs: `Pick<Services, 'database' | 'clock'>`. */
export type Services = {
  readonly config: Pick<Config, 'windowMsMax' | 'settings'>
  /** Who this server is to the others on its database. */
  readonly self: ServerSelf
  readonly clock: Clock
  readonly sql: AnySql
  /** For reads of usage and the audit log, which may be slow. It has connections of its own. */
  readonly history: AnySql
  readonly database: Database
  /** Whether the database answers and takes writes. Makes no statement while it does. */
  readonly databaseCondition: () => DatabaseCondition | Promise<DatabaseCondition>
  /** What the engine of shared limits is to this server; null = it counts its own limits. */
  readonly fleetCondition: () => 'ok' | 'learning' | 'away' | null
  readonly keys: KeyLookup
  readonly limiter: LimiterRouter
  readonly credits: CreditSpender
  readonly usage: UsageRecorder
  readonly namespaces: Namespaces
  readonly vault: Vault
  readonly eraser: Eraser
  readonly sweeper: Sweeper
  readonly creates: CreateAnswers
  /** What this thread remembers of decisions and verifications; null = TOLLGATE_DASHBOARD is off. */
  readonly recent: Recent | null
  /** Asks all HTTP threads of the process what they remember; null = nothing is remembered. */
  readonly recall: Recall | null
  /** Asks the HTTP threads of this process and the other servers on the database about a key. The subject is its hash. */
  readonly askServers: (question: Question) => Promise<Asked>
  /** The metrics of all threads, in the text format of Prometheus. */
  readonly metricsText: () => Promise<string>
  /** Figures of the process by minute, oldest first; null = TOLLGATE_DASHBOARD is off. */
  readonly statusHistory: (() => Promise<readonly StatusSample[]>) | null
  /** Counts decisions and outcomes for metrics. */
  readonly measures: Pick<Measures, 'decided' | 'verified'>
}
