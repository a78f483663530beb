import { type Static, Type } from '@sinclair/typebox'

/** Outcomes of verifications that are counted. Not found and unauthorised are not: there is no key to count for. */
export type Outcome =
  | 'VALID'
  | 'RATE_LIMITED'
  | 'EXPIRED'
  | 'DISABLED'
  | 'FORBIDDEN'
  | 'USAGE_EXCEEDED'
  | 'INSUFFICIENT_PERMISSIONS'

/** The column of `verifications` that each outcome is counted in. */
const COLUMN = {
  VALID: 'valid',
  RATE_LIMITED: 'rateLimited',
  EXPIRED: 'expired',
  DISABLED: 'disabled',
  FORBIDDEN: 'forbidden',
  USAGE_EXCEEDED: 'usageExceeded',
  INSUFFICIENT_PERMISSIONS: 'insufficientPermissions',
} as const satisfies Record<Outcome, string>
export const OUTCOME_COLUMNS = Object.values(COLUMN)
/** Where in {@link OUTCOME_COLUMNS}. */
export const COLUMN_OF = Object.fromEntries(
  Object.keys(COLUMN).map((outcome, at) => [outcome, at]),
) as Readonly<Record<Outcome, number>> // an entry for each key

/**
 * Rows of one batch at most. It bounds how long a statement takes, and how long making its text holds the thread: 1.3 ms, where
 * 5 000 rows took 2.5. 25 000 rows take 6 % longer for it.
 */
export const BATCH_ROWS_MAX = 2_000

/**
 * Columns side by side, one entry a row, as the insert takes them. In `verifications` all columns but scope, hour and keyId may
 * end early: missing entries are 0, or empty. Scope and hour may have one entry for all rows.
 */
export type UsageColumns = Static<typeof UsageColumns>
const Texts = () => Type.Array(Type.String())
const Numbers = () => Type.Array(Type.Integer())
export const UsageColumns = Type.Object({
  /** Distinct pairs; `verifications.scope` counts them from 1. */
  scopes: Type.Object({ workspaceId: Texts(), keyspaceId: Texts() }),
  /** Distinct tag sets by workspace and month; `verifications.set` counts them from 1. `id` is hex, `tags` sorted. */
  sets: Type.Object({ workspaceId: Texts(), month: Numbers(), id: Texts(), tags: Type.Array(Texts()) }),
  verifications: Type.Object({
    scope: Numbers(),
    /** 0 = no tags. */
    set: Numbers(),
    hour: Numbers(),
    keyId: Texts(),
    /** In files of earlier versions, instead of `keyId`: all ids, with a comma between them and perhaps blanks. */
    keyIds: Type.Optional(Type.Object({ rows: Type.Integer(), list: Type.String() })),
    /** Empty = none. */
    identityId: Texts(),
    valid: Numbers(),
    rateLimited: Numbers(),
    expired: Numbers(),
    disabled: Numbers(),
    forbidden: Numbers(),
    usageExceeded: Numbers(),
    insufficientPermissions: Numbers(),
  }),
  /** Namespaces by hour; `identifiers.total` counts them from 1. Includes what the identifiers below add. */
  totals: Type.Object({
    workspaceId: Texts(),
    namespaceId: Texts(),
    hour: Numbers(),
    passed: Numbers(),
    denied: Numbers(),
  }),
  identifiers: Type.Object({ total: Numbers(), identifier: Texts(), passed: Numbers(), denied: Numbers() }),
})

/**
 * Counted as a whole or not at all. Sent again unchanged under the same writer and number, it counts once. The numbers of one
 * writer must reach the database in rising order.
 */
export type UsageBatch = Static<typeof UsageBatch>
export const UsageBatch = Type.Object({
  /** Absent = {@link BATCH_FORMAT}. Written into spill files, so that a release knows what it cannot read as a whole. */
  format: Type.Optional(Type.Literal(1)),
  writer: Type.String(),
  number: Type.Integer({ minimum: 1 }),
  columns: UsageColumns,
})

const BATCH_FORMAT = 1

/** What a spill file holds of a batch. */
export const spilledBatch = (batch: UsageBatch): UsageBatch => ({ ...batch, format: BATCH_FORMAT })

/** The format of a spill file of a newer release; null = it is of this one or damaged. */
export function newerFormatOf(value: unknown): number | null {
  if (typeof value !== 'object' || value === null || !('format' in value)) return null
  return typeof value.format === 'number' && value.format > BATCH_FORMAT ? value.format : null
}

export const emptyColumns = (): UsageColumns => ({
  scopes: { workspaceId: [], keyspaceId: [] },
  sets: { workspaceId: [], month: [], id: [], tags: [] },
  verifications: {
    scope: [],
    set: [],
    hour: [],
    keyId: [],
    identityId: [],
    valid: [],
    rateLimited: [],
    expired: [],
    disabled: [],
    forbidden: [],
    usageExceeded: [],
    insufficientPermissions: [],
  },
  totals: { workspaceId: [], namespaceId: [], hour: [], passed: [], denied: [] },
  identifiers: { total: [], identifier: [], passed: [], denied: [] },
})

/** Sets a row of a column that may end before it. */
export function put<T>(column: T[], row: number, value: T, filler: T): void {
  while (column.length < row) column.push(filler)
  column.push(value)
}
