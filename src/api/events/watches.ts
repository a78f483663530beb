import { ApiError, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import {
  WATCH_MS,
  WATCHES_MAX,
  type Watch,
  type Watched,
  type WatchState,
  WORKSPACE_WATCHES_MAX,
} from '../../recent/watches.ts'
import { findIdentity } from '../identities/store.ts'
import { findKey } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import { namespaceNotFound } from '../ratelimits/namespace-name.ts'
import { findNamespace, type NamespaceName } from '../ratelimits/store.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type RecallServices, requireRecall } from './recall.ts'

/** What to watch, as a caller names it. */
export type Watching = Exclude<Watched, { kind: 'identifier' }> | (NamedIdentifier & { kind: 'identifier' })
type NamedIdentifier = { namespace: NamespaceName; identifier: string }

/**
 * Keeps every event of a key, of an identity, or of an identifier in a namespace, for 15 minutes. A watch of the same that
 * runs already is the answer.
 * @throws ApiError NOT_FOUND for an unknown key, identity or namespace; PRECONDITION_FAILED when too many watches are kept; as
 *   `requireRecall`.
 */
export async function startWatch(
  services: RecallServices & Pick<Services, 'clock' | 'sql'>,
  actor: Actor,
  watching: Watching,
): Promise<Watch> {
  const recall = requireRecall(services)
  const { workspaceId } = actor
  const { watched, namespaceName } = await find(services, actor, watching)
  const startedAt = services.clock()
  const named = JSON.stringify(watched)
  const running = (await listWatches(services, actor)).find(
    (watch) => watch.endsAt > startedAt && JSON.stringify(watch.watched) === named,
  )
  if (running !== undefined) return running
  const watch: Watch = {
    id: newId('watch'),
    workspaceId,
    watched,
    namespaceName,
    startedAt,
    endsAt: startedAt + WATCH_MS,
  }
  const { answers } = await recall('watch', watch)
  if (answers[0] !== true)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `too many watches: ${WORKSPACE_WATCHES_MAX} a workspace and ${WATCHES_MAX} a server; one counts until its events are forgotten. End one with events.unwatch`,
    )
  return watch
}

/** @throws ApiError NOT_FOUND */
async function find(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Actor,
  watching: Watching,
): Promise<Pick<Watch, 'watched' | 'namespaceName'>> {
  switch (watching.kind) {
    case 'key': {
      if ((await findKey(sql, workspaceId, watching.keyId)) === null) throw notFound('key', watching.keyId)
      return { watched: { kind: 'key', keyId: watching.keyId }, namespaceName: null }
    }
    case 'identity': {
      const { identity } = watching
      const found = await findIdentity(sql, workspaceId, { idOrExternalId: identity })
      if (found === null) throw notFound('identity', identity)
      return { watched: { kind: 'identity', identity }, namespaceName: null }
    }
    case 'identifier': {
      const namespace = await findNamespace(sql, workspaceId, watching.namespace)
      if (namespace === null) throw namespaceNotFound(watching.namespace)
      const { identifier } = watching
      return {
        watched: { kind: 'identifier', namespaceId: namespace.id, identifier },
        namespaceName: namespace.name,
      }
    }
    default:
      return watching satisfies never
  }
}

/** Ends a watch and forgets its events. One that is gone already is none to end. @throws ApiError as `requireRecall`. */
export async function stopWatch(
  services: RecallServices,
  { workspaceId }: Actor,
  watchId: string,
): Promise<void> {
  await requireRecall(services)('unwatch', { workspaceId, watchId })
}

/** Watches of the workspace, oldest first, with what all threads kept. @throws ApiError as `requireRecall`. */
export async function listWatches(services: RecallServices, { workspaceId }: Actor): Promise<WatchState[]> {
  const { answers } = await requireRecall(services)('watches', { workspaceId })
  const sums = new Map<string, WatchState>()
  for (const each of answers.flat()) {
    const sum = sums.get(each.id)
    if (sum === undefined) sums.set(each.id, { ...each })
    else {
      sum.kept += each.kept
      sum.missed += each.missed
    }
  }
  return [...sums.values()]
}
