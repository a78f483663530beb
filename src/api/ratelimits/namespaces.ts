import type { AnySql } from '../../db/connect.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { SmallCache } from '../../lib/small-cache.ts'
import type { Sharing } from '../../limiter/threads/charge.ts'
import type { SeenLimits } from '../../recent/limits-seen.ts'
import type { Invalidations } from '../../records/invalidations.ts'
import { RecordCache } from '../../records/record-cache.ts'
import type { PermissionQuery } from '../../verify/permission-query.ts'
import { CounterPrefix } from './counter-prefix.ts'
import { Overrides } from './overrides.ts'
import {
  findChanges,
  findNamespace,
  findNamespaceByName,
  findOverridesAfter,
  mayBeNamespaceId,
  type NamespaceSettings,
  type OverrideRow,
} from './store.ts'

export type Namespace = {
  id: string
  workspaceId: string
  name: string
  overrides: Overrides
  /** The permissions that allow limiting in it. */
  mayLimit: PermissionQuery
  counterPrefix: CounterPrefix
  /** How servers share its limits; null = as the environment says. */
  sharing: Sharing | null
  /** Limits that calls asked for, in this thread's memory; null = none yet. Set by `recent/recent.ts`. */
  seen: SeenLimits | null
  /** Approximate memory of it. */
  bytes: number
}

/** Namespaces with their overrides, cached by workspace and name. A missing namespace is never cached. */
export class Namespaces {
  readonly cache: RecordCache<Namespace>
  /**
   * By namespace name: the cache key of the workspace that last used it. Building and hashing that key for each call would
   * take 0.2 µs of its 4.
   */
  readonly #keys = new SmallCache<string, CacheKey>(KEYS_MAX)
  /** The same for texts that may be ids. */
  readonly #idKeys = new SmallCache<string, CacheKey>(KEYS_MAX)
  /** Namespaces being created on first use, by cache key. */
  readonly #making = new Map<string, Promise<void>>()

  constructor(sql: AnySql, invalidations: Invalidations, options: { bytesMax: number }) {
    this.cache = new RecordCache<Namespace>(invalidations, {
      load: (key, _, base) => load(sql, key, base),
      dependenciesOf: ({ id }) => [id],
      ownerOf: ({ workspaceId }) => workspaceId,
      bytesOf: ({ bytes }) => bytes,
      bytesMax: options.bytesMax,
      keepsBases: true,
      missingMax: 0,
    })
  }

  find(workspaceId: string, name: string): Namespace | null | Promise<Namespace | null> {
    let key = this.#keys.get(name)
    if (key === undefined || key.workspaceId !== workspaceId) {
      key = { workspaceId, text: keyOf(workspaceId, name) }
      this.#keys.set(name, key)
    }
    // Wait for the creation: a read before it ends would have to be repeated.
    const making = this.#making.size === 0 ? undefined : this.#making.get(key.text)
    return making === undefined ? this.cache.find(key.text) : this.#findAfter(making, key.text)
  }

  /** By id, or by name where no id is that text. */
  findByIdOrName(workspaceId: string, text: string): Namespace | null | Promise<Namespace | null> {
    if (!mayBeNamespaceId(text)) return this.find(workspaceId, text)
    let key = this.#idKeys.get(text)
    if (key === undefined || key.workspaceId !== workspaceId) {
      key = { workspaceId, text: `${workspaceId}${ID_OR_NAME}${text}` }
      this.#idKeys.set(text, key)
    }
    return this.cache.find(key.text)
  }

  /** Ignores the creation's error, which its own callers get. */
  async #findAfter(making: Promise<void>, key: string): Promise<Namespace | null> {
    await making.catch(() => {})
    return await this.cache.find(key)
  }

  /**
   * Creates missing namespaces. A name that this thread is creating already is not created again: the call waits for that
   * creation and fails with it.
   * @param make Creates the given names, which are sorted so that two servers cannot deadlock.
   */
  async makeOnce(
    workspaceId: string,
    names: readonly string[],
    make: (names: readonly string[]) => Promise<void>,
  ): Promise<void> {
    const makings = new Set<Promise<void>>()
    const missing: string[] = []
    for (const name of names.toSorted()) {
      const making = this.#making.get(keyOf(workspaceId, name))
      if (making === undefined) missing.push(name)
      else makings.add(making)
    }
    if (missing.length > 0) {
      const making = make(missing).finally(() => {
        for (const name of missing) this.#making.delete(keyOf(workspaceId, name))
      })
      for (const name of missing) this.#making.set(keyOf(workspaceId, name), making)
      makings.add(making)
    }
    await Promise.all(makings)
  }
}

/**
 * Reads a namespace with all its overrides, in pages: one of 200 000 overrides holds up neither the thread nor other
 * statements for long. Up to {@link PAGE_OVERRIDES} take one statement.
 * [Decision](../../../docs/decisions/0025-a-changed-override-is-read-alone.md)
 * @param base The namespace as it was. Only what changed since is read, and is changed in its overrides.
 */
async function load(sql: AnySql, key: string, base: Namespace | null): Promise<Namespace | null> {
  const split = key.search(/[\n\r]/) // the workspace's id contains neither
  const [workspaceId, text] = [key.slice(0, split), key.slice(split + 1)]
  const caughtUp = base && (await catchUp(sql, base))
  if (caughtUp !== null) return sized(caughtUp)
  const isName = key[split] !== ID_OR_NAME
  const name = isName
    ? text
    : (await findNamespace(sql, workspaceId as WorkspaceId, { idOrName: text }))?.name // of an actor
  if (name === undefined) return null
  const row = await findNamespaceByName(sql, workspaceId, name, PAGE_OVERRIDES)
  if (row === null) return null
  const { id } = row
  const mayLimit: PermissionQuery = { or: ['*', 'ratelimit.*.limit', `ratelimit.${id}.limit`] }
  const overrides = new Overrides(row.overrides, row.revision)
  const counterPrefix = new CounterPrefix(id)
  const sharing = sharingOf(row)
  const read = { id, workspaceId, name, overrides, mayLimit, counterPrefix, sharing, seen: null, bytes: 0 }
  if (row.overrides.length < PAGE_OVERRIDES) return sized(read)
  for (let page = row.overrides; page.length === PAGE_OVERRIDES; ) {
    const cursor = (page.at(-1) as OverrideRow).id // a full page is not empty
    page = await findOverridesAfter(sql, id, cursor, PAGE_OVERRIDES)
    for (const override of page) overrides.set(override)
  }
  // What changed between two pages.
  const now = await catchUp(sql, read)
  return now === null ? await load(sql, key, null) : sized(now)
}

/** Changes the namespace's overrides. @returns it as it is now; null when it has to be read anew. */
async function catchUp(sql: AnySql, namespace: Namespace): Promise<Namespace | null> {
  const { id, workspaceId, name, overrides } = namespace
  for (;;) {
    const { revision } = overrides
    const changes = await findChanges(sql, workspaceId, { id, name, revision }, PAGE_OVERRIDES)
    if (changes === null) return null
    const { changed } = changes
    for (const override of changed) overrides.change(override)
    if (changed.length < PAGE_OVERRIDES) return { ...namespace, sharing: sharingOf(changes) }
  }
}

const sharingOf = ({ scope, outage }: NamespaceSettings): Sharing | null =>
  scope === 'local' ? 'local' : outage

const sized = (namespace: Namespace): Namespace => ({
  ...namespace,
  bytes: 700 + 2 * namespace.name.length + namespace.overrides.bytes,
})

/** Between a workspace's id and what may be a namespace's id; a line feed is before a name. */
const ID_OR_NAME = '\r'
const keyOf = (workspaceId: string, name: string) => `${workspaceId}\n${name}`
type CacheKey = { workspaceId: string; text: string }
const KEYS_MAX = 1000
const PAGE_OVERRIDES = 2_000
