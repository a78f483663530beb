import { type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import {
  type Candidate,
  idsOf,
  type Linked,
  type LinkPlan,
  planLinks,
  type Reference,
  resolveReferences,
  textsBeforeAndAfter,
} from '../../lib/link-plan.ts'
import { type Actor, anyOf, requirePermission, requireRight } from '../root-keys/authorize.ts'
import { holdKey } from './store.ts'

/**
 * Roles and permissions hang on keys by the same rules, which are here; where the two differ is in `role-links.ts` and
 * `permission-links.ts`. Every function runs inside the caller's transaction, on a key it holds (`holdKey`), and makes a
 * fixed number of statements. The caller touches the key.
 */

export type LinkKind = {
  readonly noun: 'role' | 'permission'
  readonly idPrefix: 'role' | 'perm'
  /** Adding one with `create` needs one of these. */
  readonly createRights: readonly string[]
  /** Finds them and keeps them from being deleted until the transaction ends. */
  readonly hold: (
    tx: AnySql,
    workspaceId: WorkspaceId,
    wanted: { ids: string[]; texts: string[] },
  ) => Promise<Candidate[]>
  readonly listAttached: (tx: AnySql, workspaceId: WorkspaceId, keyId: string) => Promise<Candidate[]>
  /** Makes those that do not exist; returns the ids of the ones made here. */
  readonly insert: (tx: AnySql, workspaceId: WorkspaceId, made: Candidate[], now: number) => Promise<string[]>
  /** @throws ApiError PRECONDITION_FAILED when the key would have more than it had, and than it may have. */
  readonly requireBounds: (
    tx: AnySql,
    workspaceId: WorkspaceId,
    texts: { before: string[]; after: string[] },
  ) => Promise<void>
  readonly attach: (
    tx: AnySql,
    workspaceId: WorkspaceId,
    keyId: string,
    ids: string[],
    now: number,
  ) => Promise<void>
  readonly detach: (tx: AnySql, workspaceId: WorkspaceId, keyId: string, ids: string[]) => Promise<void>
}

type LinkRequest = { keyId: string; references: readonly Reference[]; now: number }

/**
 * Attaches what is requested, beside what the key has.
 * @returns the requested ones, in the order of the request.
 * @throws ApiError NOT_FOUND for one that neither exists nor may be made; UNAUTHORIZED when making one is not the root
 *   key's right. That it may attach any is checked by the caller.
 */
export async function addLinks(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  request: LinkRequest,
): Promise<Linked[]> {
  const { found, attached } = await readState(kind, tx, actor, request)
  const plan = { ...planLinks(request.references, found, attached), detach: [] }
  requireFound(kind, plan)
  if (plan.create.length > 0) requireRight(actor, anyOf('*', ...kind.createRights), `create a ${kind.noun}`)
  await kind.requireBounds(tx, actor.workspaceId, textsBeforeAndAfter(attached, plan))
  return await applyPlan(kind, tx, actor, request, { found, plan })
}

/**
 * Leaves the key with exactly what is requested; an empty list leaves it none. All is checked before anything changes.
 * @param beforeChange Runs first where anything would change; may throw.
 * @returns what the key now has, in the order of the request.
 * @throws ApiError NOT_FOUND for one that neither exists nor may be made; UNAUTHORIZED when detaching is not the root
 *   key's right; INSUFFICIENT_PERMISSIONS when making or attaching is not.
 */
export async function replaceLinks(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  request: LinkRequest,
  beforeChange?: () => void,
): Promise<Linked[]> {
  const { noun } = kind
  const { found, attached } = await readState(kind, tx, actor, request)
  const plan = planLinks(request.references, found, attached)
  const isChange = [plan.missing, plan.detach, plan.create, plan.attach].some((list) => list.length > 0)
  if (isChange) beforeChange?.()
  if (plan.detach.length > 0)
    requireRight(actor, anyOf('*', `rbac.*.remove_${noun}_from_key`), `remove a ${noun} from a key`)
  // Whether there is one is said to who may attach it.
  if (plan.missing.length + plan.create.length + plan.attach.length > 0)
    requirePermission(actor, anyOf('*', `rbac.*.add_${noun}_to_key`))
  await kind.requireBounds(tx, actor.workspaceId, textsBeforeAndAfter(attached, plan))
  requireFound(kind, plan)
  if (plan.create.length > 0) requirePermission(actor, anyOf('*', `rbac.*.create_${noun}`))
  return await applyPlan(kind, tx, actor, request, { found, plan })
}

/**
 * The same as a verb of its own. A root key that may change nothing of this kind is refused all the same whether the key
 * exists or not, whatever it has, and whatever else there is; unless nothing changes, for which no right is needed.
 * @throws ApiError NOT_FOUND when there is no such key, else as {@link replaceLinks}.
 */
export async function setLinks(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  request: LinkRequest,
): Promise<Linked[]> {
  const { keyId } = request
  const requireSome = () =>
    requirePermission(
      actor,
      anyOf('*', `rbac.*.add_${kind.noun}_to_key`, `rbac.*.remove_${kind.noun}_from_key`),
    )
  if (await holdKey(tx, actor.workspaceId, keyId))
    return await replaceLinks(kind, tx, actor, request, requireSome)
  requireSome()
  throw notFound(`key ${keyId}`)
}

/** Detaches what is requested; what is unknown or not attached is passed over. The right to is checked by the caller. */
export async function removeLinks(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  { keyId, references }: Omit<LinkRequest, 'now'>,
): Promise<void> {
  const attached = await kind.listAttached(tx, actor.workspaceId, keyId)
  const detach = resolveReferences(references, attached)
  if (detach.length === 0) return
  await kind.detach(tx, actor.workspaceId, keyId, idsOf(detach))
  await audit(
    tx,
    actor,
    detach.map((link) => disconnected(kind, keyId, link)),
  )
}

async function readState(
  kind: LinkKind,
  tx: AnySql,
  { workspaceId }: Actor,
  { keyId, references }: LinkRequest,
): Promise<{ found: Candidate[]; attached: Candidate[] }> {
  const ids = references.flatMap((reference) => ('id' in reference ? [reference.id] : []))
  const texts = references.flatMap((reference) => ('text' in reference ? [reference.text] : []))
  return {
    found: references.length === 0 ? [] : await kind.hold(tx, workspaceId, { ids, texts }),
    attached: await kind.listAttached(tx, workspaceId, keyId),
  }
}

function requireFound({ noun }: LinkKind, { missing: [first] }: LinkPlan): void {
  if (first !== undefined) throw notFound(`${noun} ${'id' in first ? first.id : first.text}`)
}

async function applyPlan(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  { keyId, references, now }: LinkRequest,
  { found, plan }: { found: readonly Candidate[]; plan: LinkPlan },
): Promise<Linked[]> {
  const { workspaceId } = actor
  if (plan.detach.length > 0) await kind.detach(tx, workspaceId, keyId, idsOf(plan.detach))
  const { made, others } = await makeMissing(kind, tx, workspaceId, plan.create, now)
  const connect = [...plan.attach, ...made, ...others]
  if (connect.length > 0) await kind.attach(tx, workspaceId, keyId, idsOf(connect), now)
  await audit(tx, actor, [
    ...plan.detach.map((link) => disconnected(kind, keyId, link)),
    ...made.map((link) => created(kind, link)),
    ...connect.map((link) => connected(kind, keyId, link)),
  ])
  return resolveReferences(references, [...found, ...made, ...others]).map(({ id, name }) => ({ id, name }))
}

/** @returns those made here, and those someone else made since we looked. */
async function makeMissing(
  kind: LinkKind,
  tx: AnySql,
  workspaceId: WorkspaceId,
  texts: readonly string[],
  now: number,
): Promise<{ made: Candidate[]; others: Candidate[] }> {
  if (texts.length === 0) return { made: [], others: [] }
  const wanted = texts.map((text) => ({ id: newId(kind.idPrefix), name: text, text }))
  const insertedIds = new Set(await kind.insert(tx, workspaceId, wanted, now))
  const made = wanted.filter(({ id }) => insertedIds.has(id))
  const raced = wanted.filter(({ id }) => !insertedIds.has(id)).map(({ text }) => text)
  const others = raced.length === 0 ? [] : await kind.hold(tx, workspaceId, { ids: [], texts: raced })
  return { made, others }
}

const created = ({ noun }: LinkKind, { id, name }: Linked): AuditEntry => ({
  event: `${noun}.create`,
  description: `created ${noun} ${id} for a key`,
  resources: [{ type: noun, id, name }],
})

const connected = ({ noun }: LinkKind, keyId: string, { id, name }: Linked): AuditEntry => ({
  event: `authorization.connect_${noun}_and_key`,
  description: `connected ${noun} ${id} and key ${keyId}`,
  resources: [
    { type: 'key', id: keyId },
    { type: noun, id, name },
  ],
})

const disconnected = ({ noun }: LinkKind, keyId: string, { id, name }: Linked): AuditEntry => ({
  event: `authorization.disconnect_${noun}_and_key`,
  description: `disconnected ${noun} ${id} and key ${keyId}`,
  resources: [
    { type: 'key', id: keyId },
    { type: noun, id, name },
  ],
})
