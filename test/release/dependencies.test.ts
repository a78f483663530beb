import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { readLock, resolveFrom } from '../../release/lock.ts'
import { FREE_LICENCES, licenceOf } from '../../release/sbom.ts'

/**
 * What may be installed, read from bun.lock and node_modules: no registry is asked. A package that fails here needs a
 * decision: read its licence and its script, then add it or do without it.
 */
const root = join(import.meta.dir, '../..')
const lock = readLock(root)
const packages = [...lock.packages.values()]

/** Of tools, which are not passed on, besides those that the binary may have. */
const OF_TOOLS = ['CC-BY-3.0', 'CC-BY-4.0', 'CC0-1.0', 'MPL-2.0', 'Python-2.0', 'Zlib']
/** Packages whose package.json names no licence, with the one of their files. */
const UNNAMED: Record<string, string> = { '@unkey/ratelimit/@unkey/api': 'MIT' }

/** Packages with an install script, and whether it runs. */
const SCRIPTS: Record<string, boolean> = {
  bun: true, // places the program of its platform
  'msgpackr-extract': false, // a native addon that is not used
}

const isInstalled = (path: string) =>
  existsSync(
    join(
      root,
      path.replaceAll(/(@[^/]+\/)?[^/]+/g, (name) => `node_modules/${name}`),
      'package.json',
    ),
  )
/** Bun and npm put a package in different folders, where the same importer finds it. */
const isFound = (path: string): boolean => {
  const names = path.match(/(@[^/]+\/)?[^/]+/g) ?? []
  const [own, above] = [names.at(-1) ?? '', names.slice(0, -1)]
  return above.some((_, depth) => isInstalled([...above.slice(0, depth), own].join('/'))) || isInstalled(path)
}
const licencesOf = (path: string) =>
  (UNNAMED[path] ?? licenceOf(root, path)).replaceAll(/[()]/g, '').split(/ (?:OR|AND) /)

test('every tool has a licence of the list', () => {
  const installed = packages.filter(({ path }) => isInstalled(path))
  expect(installed.length).toBeGreaterThan(100)
  const wrong = installed.filter(
    ({ path }) => !licencesOf(path).every((each) => [...FREE_LICENCES, ...OF_TOOLS].includes(each)),
  )
  expect(wrong.map(({ path }) => [path, licencesOf(path)])).toEqual([])
})

test('what is not installed is for another system', () => {
  const missing = packages.filter(({ path }) => !isFound(path)).map(({ path }) => path)
  const optional = new Set(
    packages.flatMap((each) =>
      each.optionalDependencies.map((name) => resolveFrom(lock, each.path, name)?.path ?? name),
    ),
  )
  expect(missing.filter((path) => !optional.has(path))).toEqual([])
})

test('no package runs a script at its install but those of the list', () => {
  const withScript = packages.filter(({ hasInstallScript }) => hasInstallScript).map(({ name }) => name)
  expect([...new Set(withScript)].sort()).toEqual(Object.keys(SCRIPTS).sort())
  // Both package managers know the list.
  expect(packageJson.trustedDependencies).toEqual(
    Object.keys(SCRIPTS).filter((name) => SCRIPTS[name] === true),
  )
  expect(packageJson.allowScripts).toEqual(SCRIPTS as typeof packageJson.allowScripts) // the same names
})

test('every package is pinned by a checksum, and every version in package.json is exact', () => {
  expect(packages.filter(({ integrity }) => !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity))).toEqual([])
  const versions = Object.entries({ ...packageJson.dependencies, ...packageJson.devDependencies })
  expect(versions.filter(([, version]) => !/^(npm:@?[^@]+@)?\d+\.\d+\.\d+$/.test(version))).toEqual([])
})
