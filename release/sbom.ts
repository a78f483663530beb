import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readLock, resolveFrom } from './lock.ts'
import { projectOf } from './packages.ts'
import { Refusal } from './refusal.ts'

/** Licences that code in the binary may have: they ask for no more than to be named. */
export const FREE_LICENCES = [
  '0BSD',
  'Apache-2.0',
  'BlueOak-1.0.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'ISC',
  'MIT',
  'MIT-0',
  'Unlicense',
]

/** Of the package `bun`, which an install for production does not have. */
export const BUN_LICENCE = 'MIT'

/**
 * The packages whose code the bundler puts into the binary, as paths of bun.lock. Not all that is installed is used, and
 * some packages use what happens to be installed.
 */
async function bundledPackages(folder: string): Promise<string[]> {
  const entrypoints = [
    'src/main.ts',
    'src/dashboard/ui/main.tsx', // bundled first, and part of the binary as text
    ...new Bun.Glob('src/**/*.worker.ts').scanSync(folder),
  ]
  const { metafile } = await Bun.build({
    entrypoints: entrypoints.map((each) => join(folder, each)),
    target: 'bun',
    metafile: true,
    external: ['msgpackr-extract'], // as in src/build.ts
  })
  if (metafile === undefined) throw new Error('the bundler does not say what it has read')
  const paths = Object.keys(metafile.inputs).flatMap((file) => {
    const [, ...parts] = file.split('node_modules/')
    const names = parts.map((part) => /^(?:@[^/]+\/)?[^/]+/.exec(part)?.[0] ?? '')
    return names.length === 0 ? [] : [names.join('/')]
  })
  return [...new Set(paths)].sort()
}

/**
 * What is in the binary, as CycloneDX 1.6: Bun, and packages of bun.lock. It depends on nothing but the commit, so it has no
 * serial number.
 * @param folder A clone with its packages installed: code and licences are read there.
 */
export async function sbomOf(folder: string, { atSeconds }: { atSeconds: number }) {
  const lock = readLock(folder)
  const { version, description, license } = projectOf(folder)
  const packages = await bundledPackages(folder)
  const purlOf = ({ name, version }: { name: string; version: string }) =>
    `pkg:npm/${name.replace('@', '%40')}@${version}`
  const locked = (path: string) => {
    const each = lock.packages.get(path)
    if (each === undefined) throw new Error(`bun.lock lacks ${path}`)
    return each
  }
  const refOf = (path: string) => purlOf(locked(path))
  /** Of what a package needs, what is inside. */
  const needsOf = (path: string) =>
    locked(path)
      .dependencies.map((name) => resolveFrom(lock, path, name)?.path ?? '')
      .filter((needed) => packages.includes(needed))
  const component = (path: string) => {
    const each = locked(path)
    const [group, name] = each.name.startsWith('@') ? each.name.split('/') : [undefined, each.name]
    return {
      type: 'library' as const,
      'bom-ref': purlOf(each),
      ...(group !== undefined && { group }),
      name: name ?? each.name,
      version: each.version,
      licenses: [{ expression: path === 'bun' ? BUN_LICENCE : licenceOf(folder, path) }],
      purl: purlOf(each),
      externalReferences: [
        {
          type: 'distribution' as const,
          url: `npm:${each.name}@${each.version}`,
          hashes: [
            {
              alg: 'SHA-512' as const,
              content: Buffer.from(each.integrity.replace('sha512-', ''), 'base64').toString('hex'),
            },
          ],
        },
      ],
    }
  }
  const components = [component('bun'), ...packages.map(component)]
  for (const { purl, licenses } of components)
    for (const { expression } of licenses)
      if (!FREE_LICENCES.includes(expression))
        throw new Refusal([`${purl} has the licence ${expression}, which release/sbom.ts does not list`])
  const self = purlOf({ name: 'tollgate', version })
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX' as const,
    specVersion: '1.6' as const,
    version: 1,
    metadata: {
      timestamp: new Date(atSeconds * 1000).toISOString(),
      component: {
        type: 'application' as const,
        'bom-ref': self,
        name: 'tollgate',
        version,
        description,
        licenses: [{ license: { id: license } }],
        purl: self,
      },
    },
    components,
    dependencies: [
      {
        ref: self,
        dependsOn: ['bun', ...lock.dependencies.filter((name) => packages.includes(name))].map(refOf).sort(),
      },
      { ref: refOf('bun') },
      ...packages.map((path) => ({ ref: refOf(path), dependsOn: needsOf(path).map(refOf).sort() })),
    ],
  }
}

/** The licence that an installed package names: an SPDX expression. @throws Error when it names none. */
export function licenceOf(folder: string, path: string): string {
  const place = path.replaceAll(/(@[^/]+\/)?[^/]+/g, (name) => `node_modules/${name}`)
  const { license, licenses } = JSON.parse(readFileSync(join(folder, place, 'package.json'), 'utf8'))
  const named = license ?? licenses
  if (typeof named === 'string') return named
  if (typeof named?.type === 'string') return named.type
  if (Array.isArray(named) && typeof named[0]?.type === 'string')
    return named.map(({ type }: { type: string }) => type).join(' OR ')
  throw new Error(`the package ${path} names no licence`)
}
