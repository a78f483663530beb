import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dir, '../..')
/** For servers whose speed is not tested: a slow machine must not turn a late answer into a 500. */
export const PATIENT = { TOLLGATE_DB_TIMEOUT_MS: '20000' }
/** Folders of the pages that the server shows. The rest of `docs/` is for contributors. */
const FOLDERS = ['how-to', 'reference', 'explanation']
const ALONE = ['tutorial', 'faq', 'glossary']

/** A fenced block of a text. */
export type Block = {
  /** `README`, or the name of a page. */
  doc: string
  /** Line number of its first line, from 1. */
  line: number
  language: string
  text: string
}

/** Paths of README and all pages, by name. */
export const PATHS: Readonly<Record<string, string>> = Object.fromEntries(
  [
    'README.md',
    ...ALONE.map((name) => `docs/${name}.md`),
    ...FOLDERS.flatMap((folder) =>
      readdirSync(join(ROOT, 'docs', folder))
        .filter((name) => name.endsWith('.md'))
        .sort()
        .map((name) => join('docs', folder, name)),
    ),
  ].map((path) => [path.replace(/^.*\/|\.md$/g, ''), path]),
)
/** Texts of README and all pages, by name. */
export const DOCS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(PATHS).map(([name, path]) => [name, readFileSync(join(ROOT, path), 'utf8')]),
)

/** @throws Error for a fence that is not closed or names no language. */
export function blocksOf(doc: string): Block[] {
  const blocks: Block[] = []
  let open: Block | null = null
  for (const [index, line] of (DOCS[doc] ?? '').split('\n').entries()) {
    const fence = /^```(\w*)$/.exec(line)
    if (fence === null) {
      if (open !== null) open.text += `${line}\n`
    } else if (open !== null) {
      blocks.push(open)
      open = null
    } else {
      const [, language = ''] = fence
      if (language === '') throw new Error(`${doc}:${index + 1} opens a block without a language`)
      open = { doc, line: index + 2, language, text: '' }
    }
  }
  if (open !== null) throw new Error(`${doc}:${open.line} is never closed`)
  return blocks
}

export const ALL_BLOCKS: readonly Block[] = Object.keys(DOCS).flatMap(blocksOf)

/** The block of that document and language that contains the text. @throws Error unless there is exactly one. */
export function blockWith(doc: string, language: string, text: string): Block {
  const found = blocksOf(doc).filter((block) => block.language === language && block.text.includes(text))
  const [only] = found
  if (only === undefined || found.length > 1)
    throw new Error(`${found.length} blocks of ${doc} in ${language} hold ${JSON.stringify(text)}`)
  return only
}
