import { expect, test } from 'bun:test'
import { callable, covers, GROUPS, TEMPLATES } from '../../src/dashboard/ui/screens/rights.ts'
import { describeNeed, NEEDS, V1_NEEDS, V2_ONLY_NEEDS } from '../../src/pages/needs.ts'
import { V2_NEEDS } from '../../src/pages/v2-needs.ts'

const boxes = GROUPS.flatMap((group) => group.boxes)

/** Bug of others: a picker that lacks rights, so that the root key must be given everything. */
test('every permission that a method asks for, in either API, is a box of the form of root keys', () => {
  const offered = new Set(boxes.map(({ permission }) => permission))
  const said = [...Object.values(NEEDS), ...Object.values(V2_NEEDS)].join(' ')
  const asked = [...said.matchAll(/`(\w+\.\*\.\w+)`/g)].map(([, permission = '']) => permission)
  expect(asked.length).toBeGreaterThan(40)
  expect([...new Set(asked)].filter((permission) => !offered.has(permission))).toEqual([])
})

test('a box may be for single things exactly where a method accepts that', () => {
  const single = boxes.filter(({ isForSingle }) => isForSingle).map(({ permission }) => permission)
  expect(single).toContain('api.*.create_key')
  expect(single).toContain('ratelimit.*.limit')
  expect(single).not.toContain('api.*.create_api')
  expect(single).not.toContain('rbac.*.create_role')
})

test('what a root key may call follows from all that a method needs', () => {
  const methods = callable(['api.api_1.read_key'])
  expect(methods).toContain('keys.getKey')
  expect(methods).not.toContain('keys.listKeys') // it shows keys of all APIs
  expect(methods).not.toContain('apis.listKeys') // it also needs read_api
  expect(callable(['api.api_1.read_key', 'api.*.read_api'])).toContain('apis.listKeys')
  expect(callable(['rbac.*.add_role_to_key'])).toContain('keys.setRoles')
  expect(callable([])).not.toContain('keys.setRoles')
  expect(callable(['api.*.verify_key'])).toContain('v2 keys.verifyKey')
  const all = callable(['*'])
  expect(all).not.toContain('workspaces.createWorkspace') // `*` alone makes no operator
  expect(all).toContain('rootKeys.createRootKey')
})

test('a wider permission covers a narrower one, and no other way round', () => {
  expect(covers(['*'], 'api.*.read_key')).toBe(true)
  expect(covers(['api.*.read_key'], 'api.api_1.read_key')).toBe(true)
  expect(covers(['api.api_1.read_key'], 'api.*.read_key')).toBe(false)
  expect(covers(['api.*.read_key'], '*')).toBe(false)
  expect(covers([], 'api.*.read_key')).toBe(false)
})

test('templates hold permissions that exist', () => {
  const known = new Set(['*', ...boxes.map(({ permission }) => permission)])
  for (const { name, permissions } of TEMPLATES) {
    expect([name, permissions.filter((each) => !known.has(each))]).toEqual([name, []])
    expect(permissions.length).toBeGreaterThan(0)
  }
})

test('needs in words', () => {
  const said = (method: string) => {
    const need = V1_NEEDS[method]
    if (need === undefined) throw new Error(method)
    return describeNeed(need)
  }
  expect(said('keys.createKey')).toBe(
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. With `recoverable` also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`.',
  )
  expect(said('rootKeys.rerollRootKey')).toBe(
    '`*`, or `root_key.*.create_root_key`, and `root_key.*.update_root_key`. Also every permission that the root key has.',
  )
  expect(said('keys.setRoles')).toBe(
    '`*`, or for what the call changes: to attach one `rbac.*.add_role_to_key`; to remove one `rbac.*.remove_role_from_key`; to create one `rbac.*.create_role`.',
  )
  expect(said('workspaces.listWorkspaces')).toBe('`*` that is an operator root key.')
  expect(
    Object.keys(V2_ONLY_NEEDS)
      .map((each) => each.replace('v2 ', ''))
      .sort(),
  ).toEqual(
    Object.keys(V2_NEEDS)
      .filter((method) => /verify_key|read_analytics/.test(V2_NEEDS[method] ?? ''))
      .sort(),
  )
})
