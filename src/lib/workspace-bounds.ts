/**
 * The bounds of a workspace, by name. Operators change them for all workspaces with TOLLGATE_BOUNDS, for one with
 * workspaces.updateWorkspace. `refuses`: true = refuse more at the bound; false = remove the oldest or count together. A
 * test compares this table with the guide `bounds`.
 */
export const WORKSPACE_BOUNDS = {
  apis: { value: 10_000, refuses: true },
  keys: { value: 10_000_000, refuses: true },
  rootKeys: { value: 10_000, refuses: true },
  identities: { value: 10_000_000, refuses: true },
  namespaces: { value: 10_000, refuses: true },
  overrides: { value: 100_000, refuses: true },
  overridesPerNamespace: { value: 10_000, refuses: true },
  /** Each of these patterns takes a pass over the identifier of every call. */
  innerPatternsPerNamespace: { value: 50, refuses: true },
  roles: { value: 10_000, refuses: true },
  permissions: { value: 10_000, refuses: true },
  /** This bound and those below limit the size of a key's answer and of its cached record. */
  rolesPerKey: { value: 100, refuses: true },
  permissionsPerKey: { value: 1_000, refuses: true },
  permissionBytesPerKey: { value: 65_536, refuses: true },
  permissionsPerRole: { value: 1_000, refuses: true },
  permissionBytesPerRole: { value: 8_192, refuses: true },
  queuedImports: { value: 1_000_000, refuses: true },
  /** For the whole server: only its operator creates workspaces. */
  workspaces: { value: 10_000, refuses: true },
  /** Sets of tags counted separately in an hour. Others are counted together. */
  tagSets: { value: 1_000, refuses: false },
  /** Identifiers of limits with a row of their own in an hour of usage, over all namespaces. */
  usageIdentifiers: { value: 100_000, refuses: false },
  auditEvents: { value: 10_000_000, refuses: false },
  /** For each kind: keys, root keys, APIs, namespaces, overrides. */
  deletedRecords: { value: 1_000_000, refuses: false },
  /** Queued keys that could not be created, kept with the reason. */
  failedImports: { value: 100_000, refuses: false },
  /** Of creates, for calls that are sent again. */
  createAnswers: { value: 10_000, refuses: false },
} as const satisfies Record<string, { value: number; refuses: boolean }>

export type BoundName = keyof typeof WORKSPACE_BOUNDS
/** Bounds that refuse more. */
export type RefusingBound = {
  [Name in BoundName]: (typeof WORKSPACE_BOUNDS)[Name]['refuses'] extends true ? Name : never
}[BoundName]
export type Bounds = Record<BoundName, number>

export const BOUND_NAMES = Object.keys(WORKSPACE_BOUNDS) as BoundName[] // the names of the table

export const isBoundName = (name: string): name is BoundName => Object.hasOwn(WORKSPACE_BOUNDS, name)

export const defaultBounds = (): Bounds =>
  Object.fromEntries(BOUND_NAMES.map((name) => [name, WORKSPACE_BOUNDS[name].value])) as Bounds // it has every name
