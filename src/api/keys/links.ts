import { type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql, Transaction } from '../../db/connect.ts'
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
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { holdKey } from './store.ts'

/**
 * The rules for attaching roles and permissions to keys. `role-links.ts` and `permission-links.ts` have the differences.
 * Each change locks the key (`holdKey`) and makes a fixed number of statements in one transaction.
 */

export type LinkKind = {
  readonly noun: 'role' | 'permission'
  readonly idPrefix: 'role' | 'perm'
  /** Finds them and locks them against deletion until the transaction ends. */
  readonly hold: (
    tx: AnySql,
    workspaceId: WorkspaceId,
    wanted: { ids: string[]; texts: string[] },
  ) => Promise<Candidate[]>
  readonly listAttached: (tx: AnySql, workspaceId: WorkspaceId, keyId: string) => Promise<Candidate[]>
  /** Creates those that do not exist. @returns the ids of those created here. */
  readonly insert: (tx: AnySql, workspaceId: WorkspaceId, made: Candidate[], now: number) => Promise<string[]>
  /** @throws ApiError PRECONDITION_FAILED when the key would have more than before, and more than the bound. */
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

/**
 * Rights that a dialect requires once the change is known. Each function may throw, does nothing else, and may be called
 * again.
 */
export type LinkRules = {
  /**
   * Called before the caller learns whether the named things exist, and before any bound is checked.
   * @param plan Null = the key does not exist.
   */
  readonly mayChange: (plan: LinkPlan | null) => void
  /** Called before a missing role or permission is created. */
  readonly mayCreate: () => void
}

type LinkServices = Pick<Services, 'database' | 'clock'>
/** The key and the roles or permissions, as the request names them. */
export type LinkRequest = { keyId: string; references: readonly Reference[] }

/**
 * Attaches the requested roles or permissions; existing ones stay.
 * @returns the requested ones, in the order of the request.
 * @throws ApiError NOT_FOUND for a key that does not exist, and for a role or permission that neither exists nor may be
 *   created; PRECONDITION_FAILED at a bound.
 */
export async function addLinks(
  services: LinkServices,
  actor: Actor,
  kind: LinkKind,
  request: LinkRequest,
  { mayCreate }: Pick<LinkRules, 'mayCreate'>,
): Promise<Linked[]> {
  const { keyId, references } = request
  return await services.database.write(async (tx, invalidate) => {
    const hash = await holdKey(tx, actor.workspaceId, keyId)
    if (hash === null) throw notFound('key', keyId)
    const { found, attached } = await readState(kind, tx, actor, request)
    const plan = { ...planLinks(references, found, attached), detach: [] }
    requireFound(kind, plan)
    if (plan.create.length > 0) mayCreate()
    await kind.requireBounds(tx, actor.workspaceId, textsBeforeAndAfter(attached, plan))
    const linked = await applyPlan(kind, tx, actor, request, { found, plan, now: services.clock() })
    invalidate(keyId, hash)
    return linked
  })
}

/**
 * Replaces the key's roles or permissions with the requested ones. An empty list removes all.
 * @returns what the key now has, in the order of the request.
 * @throws ApiError NOT_FOUND, PRECONDITION_FAILED as {@link addLinks}.
 */
export async function setLinks(
  services: LinkServices,
  actor: Actor,
  kind: LinkKind,
  request: LinkRequest,
  rules: LinkRules,
): Promise<Linked[]> {
  const { keyId } = request
  return await services.database.write(async (tx, invalidate) => {
    const hash = await holdKey(tx, actor.workspaceId, keyId)
    if (hash === null) {
      rules.mayChange(null)
      throw notFound('key', keyId)
    }
    const linked = await replaceLinks(kind, tx, actor, request, { rules, now: services.clock() })
    invalidate(keyId, hash)
    return linked
  })
}

/** As {@link setLinks}, inside a transaction that has locked the key and touches it. All checks come before any change. */
export async function replaceLinks(
  kind: LinkKind,
  tx: Transaction,
  actor: Actor,
  request: LinkRequest,
  { rules, now }: { rules: LinkRules; now: number },
): Promise<Linked[]> {
  const { found, attached } = await readState(kind, tx, actor, request)
  const plan = planLinks(request.references, found, attached)
  rules.mayChange(plan)
  await kind.requireBounds(tx, actor.workspaceId, textsBeforeAndAfter(attached, plan))
  requireFound(kind, plan)
  if (plan.create.length > 0) rules.mayCreate()
  return await applyPlan(kind, tx, actor, request, { found, plan, now })
}

/**
 * Detaches the requested roles or permissions. Unattached ones are ignored.
 * @param options.requiresAll False = ones that do not exist are ignored too.
 * @throws ApiError NOT_FOUND for a key that does not exist, and for a role or permission that must exist.
 */
export async function removeLinks(
  services: Pick<Services, 'database'>,
  actor: Actor,
  kind: LinkKind,
  request: LinkRequest,
  { requiresAll }: { requiresAll: boolean },
): Promise<void> {
  const { keyId, references } = request
  await services.database.write(async (tx, invalidate) => {
    const hash = await holdKey(tx, actor.workspaceId, keyId)
    if (hash === null) throw notFound('key', keyId)
    const attached = await kind.listAttached(tx, actor.workspaceId, keyId)
    if (requiresAll) {
      const { found } = await readState(kind, tx, actor, request)
      requireFound(kind, planLinks(references, found, attached))
    }
    const detach = resolveReferences(references, attached)
    if (detach.length > 0) {
      await kind.detach(tx, actor.workspaceId, keyId, idsOf(detach))
      const entries = detach.map((link) => disconnected(kind, keyId, link))
      await audit(tx, actor, entries)
    }
    invalidate(keyId, hash)
  })
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
  if (first !== undefined) throw notFound(noun, 'id' in first ? first.id : first.text)
}

async function applyPlan(
  kind: LinkKind,
  tx: AnySql,
  actor: Actor,
  { keyId, references }: LinkRequest,
  { found, plan, now }: { found: readonly Candidate[]; plan: LinkPlan; now: number },
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

/** @returns those created here, and those that another transaction created meanwhile. */
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
