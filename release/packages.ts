import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Entry, tarGz } from './tar.ts'
import { TARGETS, type Target } from './targets.ts'

/** What package.json says of the whole project. */
export type Project = { version: string; description: string; license: string; repository?: unknown }

export const projectOf = (folder: string): Project => {
  const { version, description, license, repository } = JSON.parse(
    readFileSync(join(folder, 'package.json'), 'utf8'),
  )
  return { version, description, license, ...(repository !== undefined && { repository }) }
}

/**
 * The package `tollgate`: a launcher, and the packages with the binaries, of which npm installs the one for its machine.
 * Nothing runs at an install.
 */
export function launcherPackage(folder: string, atSeconds: number): Uint8Array {
  const project = projectOf(folder)
  const manifest = {
    name: 'tollgate',
    ...project,
    type: 'module',
    bin: { tollgate: 'bin/tollgate.js' },
    files: ['bin'],
    engines: { node: '>=18' },
    optionalDependencies: Object.fromEntries(
      TARGETS.filter((each) => !('isUnsigned' in each)).map(({ name }) => [
        `@tollgate/${name}`,
        project.version,
      ]),
    ),
  }
  return tarGz(
    [
      jsonEntry('package/package.json', manifest),
      { path: 'package/bin/tollgate.js', bytes: read(folder, 'bin/tollgate.js'), isProgram: true },
      { path: 'package/README.md', bytes: read(folder, 'release/npm-readme.md') },
      { path: 'package/LICENSE', bytes: read(folder, 'LICENSE') },
    ],
    atSeconds,
  )
}

/** A package with the binary for one kind of machine. npm skips it on others. */
export function platformPackage(
  folder: string,
  target: Target,
  binary: Uint8Array,
  atSeconds: number,
): Uint8Array {
  const manifest = {
    name: `@tollgate/${target.name}`,
    ...projectOf(folder),
    // npm publishes nothing that is private.
    ...(target.isUnsigned === true && { private: true }),
    os: [target.os],
    cpu: [target.cpu],
    ...(target.libc !== undefined && { libc: [target.libc] }),
    files: ['bin'],
    preferUnplugged: true, // a program cannot be run from inside an archive
  }
  return tarGz(
    [
      jsonEntry('package/package.json', manifest),
      { path: 'package/bin/tollgate', bytes: binary, isProgram: true },
      {
        path: 'package/README.md',
        bytes: Buffer.from(`The program of the package tollgate for ${target.name}.\n`),
      },
      { path: 'package/LICENSE', bytes: read(folder, 'LICENSE') },
    ],
    atSeconds,
  )
}

/** The archive for people who want the binary alone. */
export function binaryArchive(
  folder: string,
  target: Target,
  binary: Uint8Array,
  atSeconds: number,
): Uint8Array {
  const top = `tollgate-${projectOf(folder).version}-${target.name}`
  return tarGz(
    [
      { path: `${top}/tollgate`, bytes: binary, isProgram: true },
      { path: `${top}/LICENSE`, bytes: read(folder, 'LICENSE') },
      { path: `${top}/CHANGELOG.md`, bytes: read(folder, 'CHANGELOG.md') },
    ],
    atSeconds,
  )
}

const read = (folder: string, name: string): Uint8Array => readFileSync(join(folder, name))
const jsonEntry = (path: string, value: unknown): Entry => ({
  path,
  bytes: Buffer.from(`${JSON.stringify(value, null, 2)}\n`),
})
