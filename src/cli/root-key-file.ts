import { readFile } from 'node:fs/promises'
import { isRootKeyText } from '../config.ts'
import { fileProblem } from '../lib/file-problem.ts'
import { UsageError } from './arguments.ts'
import { FileError } from './import-file.ts'

/** What `--root-key-file` says in a help. */
export const ROOT_KEY_FILE_ABOUT =
  'a file that holds the root key to call with, or - for stdin; default: TOLLGATE_ROOT_KEY, then the data dir'

/**
 * The root key in a file, or in what is piped in: on the command line, everyone who may list processes would see it.
 * @param path `-` = stdin.
 * @throws UsageError without the text, when that is none; FileError when there is nothing to read.
 */
export async function readRootKey(path: string): Promise<string> {
  const text = (path === '-' ? await Bun.stdin.text() : await readText(path)).trim()
  if (isRootKeyText(text)) return text
  const where = path === '-' ? 'stdin' : path
  throw new UsageError(
    `--root-key-file: ${where} holds no root key; it wants one line of 16 to 256 printable characters without blanks`,
  )
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new FileError(`--root-key-file: ${path} cannot be read: ${fileProblem(cause)}`, { cause })
  }
}
