import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A package of bun.lock. */
export type LockedPackage = {
  /** Where it lies below node_modules: `hono`, or `fastify/cookie` for a version of one package's own. */
  path: string
  name: string
  version: string
  /** `sha512-…` of its tarball. */
  integrity: string
  /** Names of what it needs, or uses if it is there. */
  dependencies: string[]
  optionalDependencies: string[]
  hasInstallScript: boolean
  /** The only systems that it is installed on; null = all. */
  os: string | null
}

export type Lock = {
  packages: ReadonlyMap<string, LockedPackage>
  /** Names of what the server needs. */
  dependencies: string[]
}

type Meta = {
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
  hasInstallScript?: boolean
  os?: string | string[]
}

export function readLock(folder: string): Lock {
  // Its form is bun's: text, number and lists in a fixed order. What is not there fails below.
  const lock = Bun.JSONC.parse(readFileSync(join(folder, 'bun.lock'), 'utf8')) as {
    workspaces: { '': { dependencies: Record<string, string> } }
    packages: Record<string, [string, string, Meta, string]>
  } // written by bun itself
  const packages = Object.entries(lock.packages).map(([path, [id, , meta, integrity]]): LockedPackage => {
    const at = id.lastIndexOf('@')
    return {
      path,
      name: id.slice(0, at),
      version: id.slice(at + 1),
      integrity,
      dependencies: [...Object.keys(meta.dependencies ?? {}), ...Object.keys(meta.peerDependencies ?? {})],
      optionalDependencies: Object.keys(meta.optionalDependencies ?? {}),
      hasInstallScript: meta.hasInstallScript === true,
      os: meta.os === undefined ? null : String(meta.os),
    }
  })
  return {
    packages: new Map(packages.map((each) => [each.path, each])),
    dependencies: Object.keys(lock.workspaces[''].dependencies),
  }
}

/** A package that another one asks for: its own version, or the one that a folder further up has. Null = none is installed. */
export function resolveFrom(lock: Lock, path: string, name: string): LockedPackage | null {
  for (let folder = path; folder !== ''; folder = parentOf(folder)) {
    const own = lock.packages.get(`${folder}/${name}`)
    if (own !== undefined) return own
  }
  return lock.packages.get(name) ?? null
}

/** `fastify` of `fastify/cookie`, and of `fastify/@a/b`; empty for a package at the top. */
const parentOf = (path: string) => /^(.*?)\/?(@[^/]+\/)?[^/]+$/.exec(path)?.[1] ?? ''
