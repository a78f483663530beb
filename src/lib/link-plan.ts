/** How a role or permission is named: by id, or by the text that is unique among its kind (a role's name, a permission's slug). */
export type Reference = { id: string } | { text: string; create: boolean }

/** A role or permission that exists. */
export type Linked = { id: string; name: string }
/** The same, with the text that names it. */
export type Candidate = Linked & { text: string }

export type LinkPlan = {
  /** References to what does not exist and is not to be made. */
  missing: Reference[]
  /** Texts of those to be made, then attached. */
  create: string[]
  /** Exist, and are not attached yet. */
  attach: Candidate[]
  /** Attached, and not requested. */
  detach: Candidate[]
}

/**
 * What has to happen for a key or role to have exactly the requested ones. Repeated references count once.
 * @param found Every existing one that a reference names.
 */
export function planLinks(
  references: readonly Reference[],
  found: readonly Candidate[],
  attached: readonly Candidate[],
): LinkPlan {
  const find = finderOf(found)
  const absent = references.filter((reference) => find(reference) === undefined)
  const create = new Set(
    absent.flatMap((reference) => ('text' in reference && reference.create ? [reference.text] : [])),
  )
  const requested = resolveReferences(references, found)
  const requestedIds = new Set(idsOf(requested))
  const attachedIds = new Set(idsOf(attached))
  return {
    missing: absent.filter((reference) => 'id' in reference || !create.has(reference.text)),
    create: [...create],
    attach: requested.filter(({ id }) => !attachedIds.has(id)),
    detach: attached.filter(({ id }) => !requestedIds.has(id)),
  }
}

/** The texts of what is attached before and after the plan is carried out. */
export function textsBeforeAndAfter(
  attached: readonly Candidate[],
  { detach, attach, create }: LinkPlan,
): { before: string[]; after: string[] } {
  const gone = new Set(idsOf(detach))
  const kept = attached.filter(({ id }) => !gone.has(id))
  return {
    before: attached.map(({ text }) => text),
    after: [...[...kept, ...attach].map(({ text }) => text), ...create],
  }
}

/** Those of the candidates that are named, in the order of the references, each once. */
export function resolveReferences(
  references: readonly Reference[],
  candidates: readonly Candidate[],
): Candidate[] {
  const find = finderOf(candidates)
  return [...new Set(references.flatMap((reference) => find(reference) ?? []))]
}

function finderOf(candidates: readonly Candidate[]): (reference: Reference) => Candidate | undefined {
  const byId = new Map(candidates.map((candidate) => [candidate.id, candidate]))
  const byText = new Map(candidates.map((candidate) => [candidate.text, candidate]))
  return (reference) => ('id' in reference ? byId.get(reference.id) : byText.get(reference.text))
}

export const idsOf = (links: readonly Linked[]) => links.map(({ id }) => id)
