import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'

/** The commit that is checked out in a clone, read without git; null = the folder is no clone. */
export function commitOf(folder: string): string | null {
  try {
    const found = join(folder, '.git')
    // In a work tree beside the clone it is a file that names the folder.
    const own = statSync(found).isDirectory() ? found : resolve(folder, lineOf(found).replace('gitdir: ', ''))
    const head = lineOf(join(own, 'HEAD'))
    if (!head.startsWith('ref: ')) return commitIn(head)
    const ref = head.slice('ref: '.length)
    const common = existsSync(join(own, 'commondir')) ? resolve(own, lineOf(join(own, 'commondir'))) : own
    if (existsSync(join(common, ref))) return commitIn(lineOf(join(common, ref)))
    const packed = readFileSync(join(common, 'packed-refs'), 'utf8').split('\n')
    return commitIn(packed.find((line) => line.endsWith(` ${ref}`)) ?? '')
  } catch {
    return null // no clone, or one of a kind that is not known here: the commit is a convenience
  }
}

const lineOf = (path: string) => readFileSync(path, 'utf8').trim()
const commitIn = (text: string) => /^[0-9a-f]{40}/.exec(text)?.[0] ?? null
