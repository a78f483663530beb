import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readMigrations } from '../src/db/migration-file.ts'

/**
 * `migrations.json`: each migration of a release, with the SHA-256 of its file. Databases have run these files, and a server
 * refuses a database that has run another one, so they stay as they are.
 */
export type ReleasedMigrations = Record<string, { sha256: string; since: string }>

const recordOf = (folder: string) => join(folder, 'release/migrations.json')

export const releasedMigrations = (folder: string): ReleasedMigrations =>
  existsSync(recordOf(folder)) ? JSON.parse(readFileSync(recordOf(folder), 'utf8')) : {}

/** A line for each released migration that is not what it was. */
export async function changedMigrations(folder: string): Promise<string[]> {
  const files = new Map((await readMigrations(join(folder, 'sql'))).map((each) => [each.name, each.checksum]))
  return Object.entries(releasedMigrations(folder)).flatMap(([name, { sha256, since }]) => {
    if (!files.has(name))
      return [`sql/${name} is gone; it was released in ${since}, and databases have run it`]
    if (files.get(name) === sha256) return []
    return [
      `sql/${name} was edited; it was released in ${since}, and databases have run it: put the change into a new file`,
    ]
  })
}

/** Migrations that no release has. */
export async function newMigrations(folder: string): Promise<string[]> {
  const known = releasedMigrations(folder)
  return (await readMigrations(join(folder, 'sql')))
    .map(({ name }) => name)
    .filter((name) => !(name in known))
}

/** Adds the new migrations to the record. */
export async function recordMigrations(folder: string, version: string): Promise<void> {
  const record = releasedMigrations(folder)
  for (const { name, checksum } of await readMigrations(join(folder, 'sql')))
    record[name] ??= { sha256: checksum, since: version }
  const sorted = Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)))
  writeFileSync(recordOf(folder), `${JSON.stringify(sorted, null, 2)}\n`)
}
