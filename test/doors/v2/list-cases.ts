import { expect, test } from 'bun:test'
import type { Json, TestServer, TestWorkspace } from '../../support/server.ts'
import { callV2, dataOf, refusalOf } from './common-cases.ts'

/** What the cases of lists need of a paged list of the v2 API. */
export type PagedList = {
  server: TestServer
  /** Such as `identities.listIdentities`. */
  name: string
  /** Creates an item with this text in a field that is searched, and returns its id. */
  create(workspace: TestWorkspace, text: string): Promise<string>
}

/** The cases that every list with search has in common. Registers tests. */
export function listCases(make: () => PagedList): void {
  const start = async (...texts: string[]) => {
    const { server, name, create } = make()
    const workspace = await server.workspace()
    const ids: string[] = []
    for (const text of texts) ids.push(await create(workspace, text))
    const ask = (body: Json = {}) => callV2(server, name, body, workspace.rootKey)
    const found = async (search: string) => idsOf(await dataOf(ask({ search })))
    return { workspace, ids, ask, found }
  }
  const idsOf = (data: Json): string[] => data.map(({ id }: { id: string }) => id)

  test('a limit is 1 to 100, and a search has at most 256 characters', async () => {
    const { ask } = await start()
    for (const limit of [0, -1, 101, 200])
      expect(await refusalOf(ask({ limit }))).toEqual([400, 'unkey/application/invalid_input'])
    for (const limit of [1, 100]) expect((await ask({ limit })).status).toBe(200)
    expect((await ask({ search: 'x'.repeat(256) })).status).toBe(200)
    expect((await ask({ search: 'x'.repeat(257) })).status).toBe(400)
    expect((await ask({ cursor: 'x'.repeat(1025) })).status).toBe(400)
    expect((await ask({ cursor: 'any text' })).status).toBe(200)
  })

  test('an empty list has neither items nor a cursor', async () => {
    const { body } = await (await start()).ask()
    expect(body).toEqual({ meta: body.meta, data: [], pagination: { hasMore: false } })
  })

  test('pages are complete without overlap, and the last has no cursor', async () => {
    const { ids, ask } = await start('one', 'two', 'three', 'four')
    const pages: Json[] = []
    let cursor: string | undefined
    do {
      const { body } = await ask({ limit: 2, ...(cursor === undefined ? {} : { cursor }) })
      pages.push(body)
      cursor = body.pagination.cursor
    } while (cursor !== undefined)
    expect(pages.map(({ data }) => data.length)).toEqual([2, 2])
    expect(pages.flatMap(({ data }) => idsOf(data))).toEqual(ids.toSorted())
    expect(pages.map(({ pagination }) => pagination)).toEqual([
      { hasMore: true, cursor: expect.any(String) },
      { hasMore: false },
    ])
  })

  test('a search finds part of a text and part of an id, in any letter case and by the letter', async () => {
    const { ids, found } = await start('alpha.one', 'Beta.two', 'alpha-three')
    const [alpha = '', beta = '', third = ''] = ids
    expect(await found('ALPHA')).toEqual([alpha, third].toSorted())
    expect(await found('beta.T')).toEqual([beta])
    expect(await found(beta.slice(2))).toEqual([beta])
    expect(await found('  one ')).toEqual([alpha])
    expect(await found(' \t')).toEqual(ids.toSorted())
    for (const nothing of ['%', 'alpha%', 'alpha_three', 'nowhere']) expect(await found(nothing)).toEqual([])
  })

  test('a search has pages too', async () => {
    const { ids, ask } = await start('alpha.1', 'beta', 'alpha.2', 'alpha.3')
    const [one = '', , two = '', three = ''] = ids
    const first = (await ask({ search: 'alpha', limit: 2 })).body
    expect(first.pagination.hasMore).toBe(true)
    const { body: last } = await ask({ search: 'alpha', limit: 2, cursor: first.pagination.cursor })
    expect(last.pagination).toEqual({ hasMore: false })
    expect([...idsOf(first.data), ...idsOf(last.data)]).toEqual([one, two, three].toSorted())
  })

  test('a workspace never sees what belongs to another', async () => {
    await start('alpha')
    const { found } = await start()
    expect([await found('alpha'), await found('')]).toEqual([[], []])
  })
}
