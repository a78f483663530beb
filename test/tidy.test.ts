import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { type AsExpression, type Node, type SourceFile, SyntaxKind } from 'typescript/unstable/ast'
import {
  isArrayTypeNode,
  isAsExpression,
  isCallExpression,
  isExportDeclaration,
  isImportDeclaration,
  isNamedImports,
  isNewExpression,
  isNonNullExpression,
  isPropertyAccessExpression,
  isStringLiteral,
  isTaggedTemplateExpression,
  isTemplateSpan,
  isTypeReferenceNode,
} from 'typescript/unstable/ast/is'
import { API } from 'typescript/unstable/async'
import { type MigrationFile, readMigrations, statementsOf } from '../src/db/migration-file.ts'
import { BOTH, EMBEDDED_ONLY, filesOf, LANES, testFiles } from './lanes.ts'

setDefaultTimeout(60_000) // the compiler reads the whole program

/**
 * Rules that neither the compiler nor the linter checks, read from the syntax tree. A failure lists `file:line` and the
 * problem.
 */

/** The tiers of src/, lowest first. A room imports from its own and from lower tiers only, types included. */
const TIERS: readonly (readonly string[])[] = [
  ['lib'],
  ['db'],
  ['data-dir'],
  ['records'],
  ['audit', 'vault', 'fleet'],
  ['limiter', 'usage'],
  ['recent'],
  ['erasure', 'sweep', 'verify', 'observe'],
  ['api'],
  ['doors/http'],
  ['doors/v1', 'doors/v2'],
  ['doors/forward-auth'],
  ['pages'],
  ['dashboard'],
  ['server'],
  ['cli'],
]
/**
 * Files of one resource in api/ that others may use besides its store and its types: steps that several operations share,
 * each with its users. The file for rights is open to all.
 */
const SHARED: Record<string, readonly string[]> = {
  'src/api/root-keys/authorize.ts': ['*'],
  'src/api/root-keys/granter.ts': ['workspaces'],
  'src/api/idempotency/answers.ts': ['*'],
  'src/api/events/recall.ts': ['ratelimits'],
  'src/api/ratelimits/namespace-name.ts': ['events'],
  'src/api/identities/ensure-identities.ts': ['keys'],
  'src/api/permissions/ensure-permissions.ts': ['keys', 'migrations'],
  'src/api/keys/new-keys.ts': ['migrations'],
  'src/api/rerolls/succession.ts': ['keys', 'root-keys'],
}
/** All files may import these; they import lib/ and each other. */
const OPEN_TO_ALL = ['src/errors.ts', 'src/log.ts', 'src/log-events.ts', 'src/episodes.ts']
/** All files may import its types; only `server/` and above may import its values. */
const CONFIG = 'src/config.ts'
/** The program of the browser, which the server never loads. */
const BROWSER = 'src/dashboard/ui/'
/** What both load. It imports nothing else. */
const ALSO_FOR_THE_BROWSER = [
  'src/pages/needs.ts',
  'src/lib/bounds.ts',
  'src/lib/imports/read-import.ts',
  'src/lib/imports/send-keys.ts',
  'src/lib/key-hash.ts',
  'src/lib/written-time.ts',
]
/** Where SQL is allowed, besides every `store.ts`. */
const SQL_FOLDERS = ['src/db/', 'src/records/', 'src/usage/']
const SQL_FILES = ['src/audit/log.ts']

type Import = { from: string; to: string; line: number; isType: boolean }
type Finding = { file: string; line: number }

const root = join(import.meta.dir, '..')
const found: Record<'casts' | 'anys' | 'sql' | 'environment' | 'only', Finding[]> & {
  files: string[]
  imports: Import[]
  packages: (Finding & { name: string })[]
  /** Test files that set their own timeout. */
  timeouts: Set<string>
} = {
  files: [],
  imports: [],
  packages: [],
  casts: [],
  anys: [],
  sql: [],
  environment: [],
  only: [],
  timeouts: new Set(),
}

const api = new API({ cwd: root })

beforeAll(async () => {
  found.files = [...new Bun.Glob('{src,test,bench,release}/**/*.{ts,tsx}').scanSync(root)]
    .filter((file) => !file.includes('node_modules/'))
    .sort()
  for (const [config, isOf] of [
    ['tsconfig.json', (file: string) => !file.startsWith(BROWSER)],
    [`${BROWSER}tsconfig.json`, (file: string) => file.startsWith(BROWSER)],
  ] as const) {
    const snapshot = await api.updateSnapshot({ openProject: join(root, config) })
    const project = snapshot.getProjects().find(({ configFileName }) => configFileName === join(root, config))
    for (const file of found.files.filter(isOf)) {
      const source = await project?.program.getSourceFile(join(root, file))
      if (source === undefined) throw new Error(`${file} is not part of ${config}`)
      inspect(file, source)
    }
  }
})
afterAll(() => api.close())

function inspect(file: string, source: SourceFile): void {
  const lines = source.text.split('\n')
  const lineOf = (position: number) => source.text.slice(0, position).split('\n').length
  /** The end of a node, because the formatter puts a comment there. */
  const at = (node: Node): Finding => ({ file, line: lineOf(node.end) })
  const hasReason = (node: Node) => lines[lineOf(node.end) - 1]?.includes('//') ?? false

  const visit = (node: Node): void => {
    const target = importedBy(node)
    if (target !== null) {
      const to = normalize(join(dirname(file), target.path))
      found.imports.push({ from: file, to, line: lineOf(node.end), isType: target.isType })
    }
    const name = packageOf(node)
    if (name !== null) found.packages.push({ ...at(node), name })
    if ((isAsExpression(node) && !isPlainAs(node)) || isNonNullExpression(node)) {
      if (!hasReason(node)) found.casts.push(at(node))
    }
    if (node.kind === SyntaxKind.AnyKeyword && !hasReason(node)) found.anys.push(at(node))
    if (isTaggedTemplateExpression(node) && /(^|[.#])(sql|tx)$/i.test(node.tag.getText(source)))
      found.sql.push(at(node))
    if (isPropertyAccessExpression(node)) {
      const text = node.getText(source)
      if (text === 'process.env' || text === 'Bun.env') found.environment.push(at(node))
      if (/^(test|describe|it)\.only$/.test(text)) found.only.push(at(node))
      if (/(^|[.#])(sql|tx)\.unsafe$/i.test(text)) found.sql.push(at(node))
    }
    if (isCallExpression(node) && node.expression.getText(source) === 'setDefaultTimeout')
      found.timeouts.add(file)
    node.forEachChild(visit)
  }
  visit(source)
}

/** True for `as const`, and for a list in a query, where no comment fits: the driver's types refuse a readonly list. */
const isPlainAs = (node: AsExpression) =>
  (isTypeReferenceNode(node.type) && node.type.getText() === 'const') ||
  (isArrayTypeNode(node.type) && isTemplateSpan(node.parent))

/** The relative path that a node imports, exports from, or starts a worker from. */
function importedBy(node: Node): { path: string; isType: boolean } | null {
  if (isImportDeclaration(node) || isExportDeclaration(node)) {
    const name = node.moduleSpecifier
    if (name === undefined || !isStringLiteral(name) || !name.text.startsWith('.')) return null
    return { path: name.text, isType: isImportDeclaration(node) ? isTypeImport(node) : node.isTypeOnly }
  }
  const [argument] = isNewExpression(node) || isCallExpression(node) ? (node.arguments ?? []) : []
  if (isCallExpression(node) && node.expression.kind !== SyntaxKind.ImportKeyword) return null
  if (argument === undefined || !isStringLiteral(argument) || !/^\.\.?\/.*\.tsx?$/.test(argument.text))
    return null
  // A worker is not loaded into the thread that starts it, so it cannot form a cycle.
  return { path: argument.text, isType: isNewExpression(node) }
}

/** `bun:test` of `import { test } from 'bun:test'`; null for a path. */
function packageOf(node: Node): string | null {
  if (!isImportDeclaration(node) && !isExportDeclaration(node)) return null
  const name = node.moduleSpecifier
  return name !== undefined && isStringLiteral(name) && !name.text.startsWith('.') ? name.text : null
}

function isTypeImport(node: Node): boolean {
  if (!isImportDeclaration(node) || node.importClause === undefined) return false
  if (node.importClause.phaseModifier === SyntaxKind.TypeKeyword) return true
  const bindings = node.importClause.namedBindings
  if (node.importClause.name !== undefined || bindings === undefined || !isNamedImports(bindings))
    return false
  return bindings.elements.every((element) => element.isTypeOnly)
}

/** `doors/v1` of `src/doors/v1/keys/routes.ts`, `api` of `src/api/keys/store.ts`; null for files directly in src. */
const roomOf = (file: string) =>
  /^src\/(doors\/[^/]+)\//.exec(file)?.[1] ?? /^src\/([^/]+)\//.exec(file)?.[1] ?? null

/** `keys` of `src/api/keys/store.ts`. */
const resourceOf = (file: string) => /^src\/api\/([^/]+)\//.exec(file)?.[1] ?? null

const tierOf = (room: string) => TIERS.findIndex((rooms) => rooms.includes(room))

/** @returns the problem of an import between two files of src, or null. */
function wrongAbout({ from, to, isType }: Import): string | null {
  const [room, target] = [roomOf(from), roomOf(to)]
  if (from === 'src/main.ts') return target === 'cli' ? null : 'main.ts imports only cli/'
  if (OPEN_TO_ALL.includes(from) || from === CONFIG)
    return target === 'lib' || OPEN_TO_ALL.includes(to)
      ? null
      : 'it may import only lib/ and files open to all'
  if (OPEN_TO_ALL.includes(to) || room === null) return null
  if (room === target) return room === 'api' ? wrongInApi({ from, to, isType }) : null
  if (to === CONFIG)
    return isType || tierOf(room) >= tierOf('server') ? null : 'only the types of config.ts are open to all'
  if (target === null) return 'it is directly in src/ and not open to all'
  if (tierOf(room) === -1) return `${room}/ is in no tier`
  return tierOf(target) < tierOf(room) ? null : `${room}/ may not import ${target}/`
}

/** Between resources of api/. */
function wrongInApi({ from, to, isType }: Omit<Import, 'line'>): string | null {
  const [own, other] = [resourceOf(from), resourceOf(to)]
  const isStore = to.endsWith('/store.ts')
  if (from.endsWith('/store.ts') && !isType && !isStore) return 'a store imports no operation'
  if (own === other || other === null || isType || isStore) return null
  const users = SHARED[to]
  return users !== undefined && (users.includes('*') || users.includes(own ?? ''))
    ? null
    : `${own}/ may use of ${other}/ only its store, its types and what SHARED lists`
}

test('imports go down the tiers only, and sideways where the tables allow it', () => {
  const wrong = found.imports
    .filter(({ from, to }) => from.startsWith('src/') && to.startsWith('src/'))
    .flatMap((one) => {
      const rule = wrongAbout(one)
      return rule === null ? [] : [`${one.from}:${one.line} imports ${one.to}: ${rule}`]
    })
  expect(wrong).toEqual([])
})

/**
 * An operation takes and returns plain values, and gets an actor: body schemas and the order of checks belong to a dialect.
 * The tiers keep operations from importing a door.
 */
test('operations know neither a wire schema nor the call', () => {
  const schemas = found.packages.filter(
    ({ file, name }) => roomOf(file) === 'api' && name.startsWith('@sinclair/typebox'),
  )
  const calls = found.imports.filter(
    ({ from, to }) =>
      to === 'src/api/call.ts' && roomOf(from) === 'api' && from !== 'src/api/root-keys/authorize.ts',
  )
  expect([...schemas.map(place), ...calls.map(({ from, line }) => `${from}:${line}`)]).toEqual([])
})

test('the program imports neither tests nor benchmarks nor what makes a release', () => {
  const wrong = found.imports.filter(
    ({ from, to }) => from.startsWith('src/') && !/^(src\/|package\.json$|docs\/.*\.md$)/.test(to),
  )
  expect(wrong.map(({ from, to, line }) => `${from}:${line} imports ${to}`)).toEqual([])
})

/** What the browser loads of the server would be sent to everybody, and would not run there. */
test('the browser’s program imports only types and shared files of the server, and the server nothing of it', () => {
  const wrong = found.imports.filter(
    ({ from, to, isType }) =>
      from.startsWith('src/') &&
      from.startsWith(BROWSER) !== to.startsWith(BROWSER) &&
      (to.startsWith(BROWSER) || !isType) &&
      !ALSO_FOR_THE_BROWSER.includes(to),
  )
  expect(wrong.map(({ from, to, line }) => `${from}:${line} imports ${to}`)).toEqual([])
  const others = found.imports.filter(
    ({ from, to }) => ALSO_FOR_THE_BROWSER.includes(from) && !ALSO_FOR_THE_BROWSER.includes(to),
  )
  expect(others).toEqual([])
})

/** In a cycle the order of loading decides which values are still undefined. Types are erased and do not count. */
test('imports form no cycle', () => {
  const targets = Map.groupBy(
    found.imports.filter(({ isType }) => !isType),
    ({ from }) => from,
  )
  const done = new Set<string>()
  const cycles: string[] = []
  const walk = (file: string, path: string[]): void => {
    if (path.includes(file)) cycles.push([...path.slice(path.indexOf(file)), file].join(' → '))
    if (path.includes(file) || done.has(file)) return
    for (const { to } of targets.get(file) ?? []) walk(to, [...path, file])
    done.add(file)
  }
  for (const file of targets.keys()) walk(file, [])
  expect(cycles).toEqual([])
})

const ENTRIES = [
  'src/main.ts',
  'src/build.ts',
  `${BROWSER}main.tsx`,
  'test/hostile/main.ts',
  'test/nightly.ts',
  'release/main.ts',
]

/**
 * A file of the program that only tests import is dead code too. Benchmarks, and tests that kill a process (`*.child.ts`),
 * start their files by name; a declaration (`*.d.ts`) is for the compiler.
 */
test('every file is imported by another', () => {
  const imported = new Set(
    found.imports
      .filter(({ from, to }) => to.startsWith('src/') === from.startsWith('src/'))
      .map(({ to }) => to),
  )
  const isEntry = (file: string) =>
    ENTRIES.includes(file) || /\.(test|child|d)\.ts$/.test(file) || file.startsWith('bench/')
  const unused = found.files.filter((file) => !isEntry(file) && !imported.has(file))
  expect(unused).toEqual([])
})

test('every import leads to a file', () => {
  const wrong = found.imports.filter(({ to }) => /\.tsx?$/.test(to) && !found.files.includes(to))
  expect(wrong.map(({ from, to, line }) => `${from}:${line} imports ${to}`)).toEqual([])
})

test('the environment is read in config.ts only', () => {
  expect(inProgram(found.environment).filter((place) => !place.startsWith('src/config.ts:'))).toEqual([])
})

test('SQL stands only in a store.ts, in db/, in records/, in usage/ and in audit/log.ts', () => {
  const isAllowed = (file: string) =>
    file.endsWith('/store.ts') ||
    SQL_FILES.includes(file) ||
    SQL_FOLDERS.some((folder) => file.startsWith(folder))
  expect(inProgram(found.sql.filter(({ file }) => !isAllowed(file)))).toEqual([])
})

/** Each pattern of the table matches files, and each file is in a lane. */
test('CI runs every test file', () => {
  const files = testFiles()
  const inLanes = new Set(LANES.flatMap((lane) => filesOf(lane)))
  expect(files.filter((file) => !inLanes.has(file))).toEqual([])
  const patterns = [...EMBEDDED_ONLY, ...BOTH]
  expect(patterns.filter((pattern) => !files.some((file) => new Bun.Glob(pattern).match(file)))).toEqual([])
})

/** A comment has purpose, path or states, and invariant. The history of a choice is in docs/decisions/. */
test('no comment is longer than fourteen lines', async () => {
  const long: string[] = []
  for (const file of found.files.filter((name) => /^(src|bench|release)\//.test(name))) {
    const text = await Bun.file(join(root, file)).text()
    for (const { 0: comment, index } of text.matchAll(/\/\*[\s\S]*?\*\//g)) {
      const lines = comment.split('\n').length
      if (lines > 14) long.push(`${file}:${text.slice(0, index).split('\n').length} has ${lines} lines`)
    }
  }
  expect(long).toEqual([])
})

/** A link to a decision leads to one. */
test('every decision that is named exists', async () => {
  const decisions = readdirSync(join(root, 'docs/decisions')).map((name) => name.slice(0, 4))
  const wrong: string[] = []
  for (const file of found.files) {
    const text = await Bun.file(join(root, file)).text()
    for (const [, number = ''] of text.matchAll(/docs\/decisions\/(\d{4})/g))
      if (!decisions.includes(number)) wrong.push(`${file} names decision ${number}`)
  }
  expect(wrong).toEqual([])
})

test('no test runs alone', () => {
  expect(found.only.map(place)).toEqual([])
})

test('`any` carries its reason on the same line', () => {
  expect(found.anys.map(place)).toEqual([])
})

test('a cast or non-null assertion carries its reason on the same line', () => {
  expect(found.casts.map(place)).toEqual([])
})

/** Bun gives a test 5 s, and only the file itself can change that. Starting a server on a busy machine takes longer. */
test('a test file that starts a server or a database sets its own timeout', () => {
  const starters = ['test/support/server.ts', 'test/support/database.ts']
  const files = found.imports.filter(({ from, to }) => from.endsWith('.test.ts') && starters.includes(to))
  const missing = files.filter(({ from }) => !found.timeouts.has(from))
  expect([...new Set(missing.map(({ from }) => `${from} lacks setDefaultTimeout(SLOW_MS)`))]).toEqual([])
})

test('migrations are numbered, and no number is used twice', () => {
  const names = readdirSync(join(root, 'sql')).sort()
  const numbers = names.map((name) => Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(name)?.[1]))
  expect(numbers).toEqual([...new Set(numbers)])
  expect(numbers.filter(Number.isNaN)).toEqual([])
})

/** The last migration of before the rules that follow. */
const LAST_WITHOUT_RULES = 32

/** A server of the release before works on the database meanwhile and afterwards: docs/decisions/0031. */
test('a migration says which servers can live with it, and takes nothing from them', async () => {
  const files = await readMigrations(join(root, 'sql'))
  const made = new Set<string>()
  const wrong = files.flatMap((file) => {
    const rules = file.number > LAST_WITHOUT_RULES ? wrongInMigration(file, made) : []
    for (const table of tablesMadeIn(file.text)) made.add(table)
    return rules.map((rule) => `sql/${file.name}: ${rule}`)
  })
  expect(wrong).toEqual([])
})

test('the rules for migrations refuse what they are for', () => {
  const old = new Set(['keys'])
  const rulesOf = (text: string) => {
    const head = { number: 99, name: '0099_x.sql', checksum: '', transaction: 'one' } as const
    const phase = text.includes('-- phase: contract') ? 'contract' : 'expand'
    const oldestServer = text.startsWith('-- oldest server: ') ? '0.1' : null
    return wrongInMigration({ ...head, text, phase, oldestServer }, old)
  }
  const headed = (text: string) => rulesOf(`-- oldest server: 0.1\n${text}`).length
  expect(rulesOf('create table new (id text);')).toEqual([
    'the first line must be: -- oldest server: <version>, the oldest release whose servers work on after it',
  ])
  expect(headed('create table new (id text); create index new_by_id on new (id);')).toBe(0)
  expect(headed('create index keys_by_x on keys (x);')).toBe(1)
  expect(headed('create unique index if not exists keys_by_x on only keys (x);')).toBe(1)
  expect(headed('create index concurrently keys_by_x on keys (x);')).toBe(0)
  for (const text of [
    'drop table keys',
    'drop function f(text)',
    'drop index keys_by_x',
    'alter table keys drop x',
    'alter table keys drop column x',
    'alter table keys rename column x to y',
    'alter function f rename to g',
    'alter table keys alter column x set not null',
    'alter table keys alter x type bigint',
    'alter table keys add column x text not null',
  ]) {
    expect([text, headed(`${text};`)]).toEqual([text, 1])
    expect([text, headed(`-- phase: contract\n${text};`)]).toEqual([text, 0])
  }
  for (const text of [
    "insert into settings values ('drop table keys', 'x')",
    'create function f() returns void language sql as $$ drop table if exists x $$',
    'alter table sweeps drop constraint c, add constraint c check (true)',
    'alter table keys add column x text not null default 1',
    'alter table keys alter column x drop not null',
    'drop trigger a on keys',
  ])
    expect([text, headed(`${text};`)]).toEqual([text, 0])
})

const tablesMadeIn = (text: string) =>
  statementsOf(text).flatMap((each) => /^create table (?:if not exists )?(\w+)/i.exec(each)?.[1] ?? [])

/** What a statement takes from servers that know nothing of the migration. A trigger may be dropped and made anew. */
const TAKING = [
  /^drop (?!trigger\b)/i,
  /^alter .*\brename\b/i,
  /^alter table .*\bdrop (?!constraint\b|not null\b|default\b)/i,
  /^alter table .*\bset not null\b/i,
  /^alter table .*\balter (?:column )?\w+ (?:set data )?type\b/i,
]

/** @param old Tables of earlier migrations. */
function wrongInMigration(file: MigrationFile, old: ReadonlySet<string>): string[] {
  const made = new Set(tablesMadeIn(file.text))
  const wrong: string[] = []
  if (file.oldestServer === null)
    wrong.push(
      'the first line must be: -- oldest server: <version>, the oldest release whose servers work on after it',
    )
  for (const statement of statementsOf(file.text)) {
    const shown = statement.length > 80 ? `${statement.slice(0, 80)}…` : statement
    const isTaking = TAKING.some((pattern) => pattern.test(statement)) || addsDemanding(statement)
    if (isTaking && file.phase !== 'contract')
      wrong.push(`older servers need what this takes: let a file "-- phase: contract" do it later: ${shown}`)
    const [, indexed = ''] =
      /^create (?:unique )?index (?:if not exists )?\w+ on (?:only )?(\w+)/i.exec(statement) ?? []
    if (old.has(indexed) && !made.has(indexed))
      wrong.push(
        `writes wait while an index is made: use "create index concurrently" in a file with "-- transaction: none": ${shown}`,
      )
  }
  return wrong
}

/** A new column that an older server's insert does not fill. */
const addsDemanding = (statement: string) =>
  /^alter table /i.test(statement) &&
  statement
    .split(/,(?![^(]*\))/)
    .some((part) => /\badd (?:column )?.*\bnot null\b/i.test(part) && !/\b(default|generated)\b/i.test(part))

const place = ({ file, line }: Finding) => `${file}:${line}`
const inProgram = (findings: Finding[]) => findings.filter(({ file }) => file.startsWith('src/')).map(place)
