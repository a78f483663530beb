/** What CHANGELOG.md says of a version. */
export type Section = { heading: string; isEmpty: boolean }

/** The section of a version that has a date, such as `## 0.2.0 – 2026-11-28`; null = there is none. */
export const datedSection = (text: string, version: string): Section | null =>
  sectionsOf(text).find(({ heading }) => DATED.exec(heading)?.[1] === version) ?? null

export const unreleasedSection = (text: string): Section | null =>
  sectionsOf(text).find(({ heading }) => heading === UNRELEASED) ?? null

/** Moves what is under "Unreleased" to a version with a date, below an "Unreleased" that is empty. */
export function releasedChangelog(text: string, version: string, date: string): string {
  const heading = `## ${UNRELEASED}\n`
  const at = text.indexOf(heading)
  if (at === -1) throw new Error(`CHANGELOG.md has no heading "${UNRELEASED}"`)
  return `${text.slice(0, at)}${heading}\n## ${version} – ${date}\n${text.slice(at + heading.length)}`
}

const UNRELEASED = 'Unreleased'
const DATED = /^(\d+\.\d+\.\d+) – \d{4}-\d{2}-\d{2}$/

const sectionsOf = (text: string): Section[] =>
  text
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const [heading = '', ...lines] = section.split('\n')
      return { heading, isEmpty: !lines.some((line) => line.startsWith('- ')) }
    })
