/**
 * What a workspace may have at most, by name: the one table of it. The operator changes them for all workspaces with
 * TOLLGATE_BOUNDS, for one with workspaces.updateWorkspace. `refuses`: at the bound, what would go beyond it is refused;
 * else the oldest go. The guide `bounds` lists them all; a test compares the two.
 */
export const WORKSPACE_BOUNDS = {
  apis: { value: 10_000, refuses: true },
  keys: { value: 10_000_000, refuses: true },
  rootKeys: { value: 10_000, refuses: true },
  identities: { value: 10_000_000, refuses: true },
  namespaces: { value: 10_000, refuses: true },
  overrides: { value: 100_000, refuses: true },
  overridesPerNamespace: { value: 10_000, refuses: true },
  /** Each of them takes a pass over the identifier of every call. */
  innerPatternsPerNamespace: { value: 50, refuses: true },
  roles: { value: 10_000, refuses: true },
  permissions: { value: 10_000, refuses: true },
  /** With those below: what one key's answer and its cached record take. */
  rolesPerKey: { value: 100, refuses: true },
  permissionsPerKey: { value: 1_000, refuses: true },
  permissionBytesPerKey: { value: 65_536, refuses: true },
  permissionsPerRole: { value: 1_000, refuses: true },
  permissionBytesPerRole: { value: 8_192, refuses: true },
  queuedImports: { value: 1_000_000, refuses: true },
  /** Of the whole server: workspaces are made by its operator. */
  workspaces: { value: 10_000, refuses: true },
  /** Sets of tags that an hour keeps apart; those beyond are counted together. */
  tagSets: { value: 1_000, refuses: false },
  /** Identifiers of limits that have a row of their own in an hour of usage, over all namespaces. */
  usageIdentifiers: { value: 100_000, refuses: false },
  auditEvents: { value: 10_000_000, refuses: false },
  /** Of each kind: keys, root keys, APIs, namespaces, overrides. */
  deletedRecords: { value: 1_000_000, refuses: false },
  /** Enqueued keys that could not be made, kept with the reason. */
  failedImports: { value: 100_000, refuses: false },
} as const satisfies Record<string, { value: number; refuses: boolean }>

export type BoundName = keyof typeof WORKSPACE_BOUNDS
/** Those at which something is refused. */
export type RefusingBound = {
  [Name in BoundName]: (typeof WORKSPACE_BOUNDS)[Name]['refuses'] extends true ? Name : never
}[BoundName]
export type Bounds = Record<BoundName, number>

export const BOUND_NAMES = Object.keys(WORKSPACE_BOUNDS) as BoundName[] // its own names

export const isBoundName = (name: string): name is BoundName => Object.hasOwn(WORKSPACE_BOUNDS, name)

export const defaultBounds = (): Bounds =>
  Object.fromEntries(BOUND_NAMES.map((name) => [name, WORKSPACE_BOUNDS[name].value])) as Bounds // of every name
