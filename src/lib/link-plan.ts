/**
 * The name of a role or permission: its id, or the text that is unique among its kind (a role's name, a permission's slug).
 */
export type Reference = { id: string } | { text: string; create: boolean }

/** A role or permission that exists. */
export type Linked = { id: string; name: string }
/** With the unique text. */
export type Candidate = Linked & { text: string }

export type LinkPlan = {
  /** References to missing ones that must not be created. */
  missing: Reference[]
  /** Texts of missing ones, to be created and attached. */
  create: string[]
  /** Existing ones that are not attached yet. */
  attach: Candidate[]
  /** Attached ones that are not requested. */
  detach: Candidate[]
}

/**
 * Plans the changes after which a key or role has exactly the requested ones. Duplicates are ignored.
 * @param found All existing ones that the references name.
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

/** The texts attached before and after the plan. */
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

/** The named ones among the candidates, in the order of the references, each once. */
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
