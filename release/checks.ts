import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { datedSection, unreleasedSection } from './changelog.ts'
import { changedMigrations, newMigrations } from './migrations.ts'
import { otherVersions } from './versions.ts'

/**
 * What stands against making a version from a clone: one line for each reason, none = nothing does. Before a version has its
 * section in the changelog a release can be rehearsed; under its tag it must have one.
 */
export async function reasonsAgainst(folder: string, version: string): Promise<string[]> {
  if (!/^\d+\.\d+\.\d+$/.test(version)) return [`the version is ${version}; it must be like 0.2.0`]
  if (!existsSync(join(folder, '.git')))
    return [`${folder} is no clone: a release is made from a commit, and its date is the date of that`]
  const reasons: string[] = []

  const changed = git(folder, 'status', '--porcelain')
  if (changed !== '')
    reasons.push(`the clone has changes that are in no commit: ${changed.split('\n').map(nameIn).join(', ')}`)

  for (const place of otherVersions(folder, version))
    reasons.push(`${place.file}:${place.line} says ${place.version}, not ${version}`)

  const tag = git(folder, 'rev-parse', '--verify', '--quiet', `v${version}^{commit}`)
  const isTagged = tag !== '' && tag === git(folder, 'rev-parse', 'HEAD')
  if (tag !== '' && !isTagged)
    reasons.push(`${version} is released: its tag v${version} is another commit, ${tag.slice(0, 12)}`)

  const changelog = readFileSync(join(folder, 'CHANGELOG.md'), 'utf8')
  const dated = datedSection(changelog, version)
  if (dated?.isEmpty === true) reasons.push(`CHANGELOG.md lists no change under "${dated.heading}"`)
  if (dated === null && isTagged) reasons.push(`CHANGELOG.md has no section "${version} – <date>"`)
  if (dated === null && (unreleasedSection(changelog)?.isEmpty ?? true))
    reasons.push(`CHANGELOG.md has no section "${version} – <date>" and nothing under "Unreleased"`)

  reasons.push(...(await changedMigrations(folder)))
  if (dated !== null)
    for (const name of await newMigrations(folder))
      reasons.push(`sql/${name} is not in release/migrations.json: bun run release --prepare ${version}`)

  const wanted = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).devDependencies.bun
  if (Bun.version !== wanted)
    reasons.push(`this is Bun ${Bun.version}; another one makes other files than Bun ${wanted}`)
  return reasons
}

/** @returns what git wrote; empty when it says no. */
export function git(folder: string, ...words: string[]): string {
  return Bun.spawnSync(['git', ...words], { cwd: folder })
    .stdout.toString()
    .trimEnd()
}

const nameIn = (line: string) => line.slice(3)
