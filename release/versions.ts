import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Where the version stands, besides package.json, from which the program, the pages and the metrics have it. A version is
 * `0.2.0` or, where readers are told of a series, `0.2`.
 */
const PLACES: readonly { files: string; pattern: RegExp }[] = [
  { files: 'package.json', pattern: /^( {2}"version": ")(\d+\.\d+\.\d+)(?=",$)/gm },
  { files: 'README.md', pattern: /(\*\*Stability\.\*\* Version )(\d+\.\d+(?:\.\d+)?)\b/g },
  { files: 'docs/faq.md', pattern: /(\bTollgate is at )(\d+\.\d+(?:\.\d+)?)\b/g },
  { files: 'README.md', pattern: /(bun run release --dry-run )(\d+\.\d+\.\d+)\b/g },
  { files: 'Dockerfile', pattern: /(org\.opencontainers\.image\.version=)(\d+\.\d+\.\d+)\b/g },
  // Names of images and packages: tollgate:0.2.0, tollgate@0.2.0. Names of files: tollgate-0.2.0-linux-x64.
  ...['README.md', 'compose.yaml', 'docs/tutorial.md', 'docs/faq.md', 'docs/how-to/*.md', 'deploy/**/*'].map(
    (files) => ({ files, pattern: /(\btollgate[:@-]v?)(\d+\.\d+\.\d+)\b/g }),
  ),
  { files: 'deploy/kubernetes/**/*.yaml', pattern: /(\bnewTag: "?v?)(\d+\.\d+\.\d+)\b/g },
]

type Place = { file: string; line: number; version: string }

export function versionsIn(folder: string): Place[] {
  return PLACES.flatMap(({ files, pattern }) =>
    namesOf(folder, files).flatMap((file) => {
      const text = readFileSync(join(folder, file), 'utf8')
      return [...text.matchAll(pattern)].map((match) => ({
        file,
        line: text.slice(0, match.index).split('\n').length,
        version: match[2] ?? '',
      }))
    }),
  )
}

/** Places that say another version. */
export const otherVersions = (folder: string, version: string): Place[] =>
  versionsIn(folder).filter((place) => place.version !== inFormOf(place.version, version))

/** Writes the version to all places. */
export function writeVersion(folder: string, version: string): void {
  for (const { files, pattern } of PLACES)
    for (const file of namesOf(folder, files)) {
      const text = readFileSync(join(folder, file), 'utf8')
      const written = text.replaceAll(
        pattern,
        (_, before: string, old: string) => before + inFormOf(old, version),
      )
      if (written !== text) writeFileSync(join(folder, file), written)
    }
}

/** `0.2` where the old text is a series, `0.2.0` where it is a version. */
const inFormOf = (old: string, version: string) =>
  version.split('.').slice(0, old.split('.').length).join('.')

const namesOf = (folder: string, files: string) =>
  [...new Bun.Glob(files).scanSync({ cwd: folder, onlyFiles: true })].sort()
