import { type AnyOf, V1_NEEDS, V2_ONLY_NEEDS } from '../../../pages/needs.ts'

/** A permission that a root key may hold, as a box to tick. */
export type Box = {
  /** For all things of its kind: `api.*.create_key`. */
  permission: string
  resource: string
  action: string
  /** It may be held for single things too: `api.<id>.create_key`. */
  isForSingle: boolean
}

const NAMES: Record<string, string> = {
  api: 'APIs and keys',
  ratelimit: 'Rate limits',
  identity: 'Identities',
  rbac: 'Roles and permissions',
  root_key: 'Root keys',
  audit: 'Audit',
}

const NEEDED = [...Object.entries(V1_NEEDS), ...Object.entries(V2_ONLY_NEEDS)]

/** Every permission of the table of needs, by kind of thing. */
export const GROUPS: readonly { resource: string; name: string; boxes: readonly Box[] }[] = groupsOf()

function groupsOf() {
  const all = NEEDED.flatMap(([, { all: each, also }]) => [...each, ...also.map(({ anyOf }) => anyOf)]).flat()
  const boxes = new Map<string, Box>()
  for (const text of all) {
    const [resource = '', id, action = ''] = text.split('.')
    if (id !== '*') continue
    boxes.set(text, {
      permission: text,
      resource,
      action,
      isForSingle: all.some((each) => each.startsWith(`${resource}.{`) && each.endsWith(`.${action}`)),
    })
  }
  return [...Map.groupBy(boxes.values(), ({ resource }) => resource)].map(([resource, own]) => ({
    resource,
    name: NAMES[resource] ?? resource,
    boxes: own,
  }))
}

/** Whether a root key that holds these may do what the permission says: for all, or for the thing in it. */
export function covers(held: readonly string[], permission: string): boolean {
  const [resource, , action] = permission.split('.')
  return held.some((each) => each === '*' || each === permission || each === `${resource}.*.${action}`)
}

/** Methods that a root key with these permissions may call, at least for some things. */
export const callable = (held: readonly string[]): string[] =>
  NEEDED.filter(
    ([, { all, also, isForOperator }]) =>
      !isForOperator &&
      (all.length > 0
        ? all.every((group) => isMet(held, group))
        : also.some(({ anyOf }) => isMet(held, anyOf))),
  ).map(([method]) => method)

const isMet = (held: readonly string[], group: AnyOf) =>
  held.some((each) => each === '*' || group.some((wanted) => fits(each, wanted)))

/** `api.api_1.read_key` fits `api.{apiId}.read_key`. */
function fits(held: string, wanted: string): boolean {
  if (held === wanted) return true
  const [start, end] = wanted.split(/\{\w+\}/)
  return end !== undefined && held.startsWith(start ?? '') && held.endsWith(end)
}

const named = (...actions: string[]) =>
  GROUPS.flatMap(({ boxes }) => boxes)
    .filter(({ action }) => actions.includes(action))
    .map(({ permission }) => permission)

/** Sets of permissions to begin with. */
export const TEMPLATES: readonly { name: string; permissions: readonly string[] }[] = [
  { name: 'Verify and limit', permissions: named('verify_key', 'limit', 'create_namespace') },
  {
    name: 'Key admin',
    permissions: [...named('create_key', 'read_key', 'update_key', 'delete_key'), 'api.*.read_api'],
  },
  {
    name: 'Read only',
    permissions: GROUPS.flatMap(({ boxes }) => boxes)
      .filter(({ action }) => action.startsWith('read_'))
      .map(({ permission }) => permission),
  },
  {
    name: 'Analytics',
    permissions: ['api.*.read_api', 'ratelimit.*.read_namespace', ...named('read_analytics')],
  },
  { name: 'Everything', permissions: ['*'] },
]
