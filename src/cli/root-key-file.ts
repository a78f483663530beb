import { readFile } from 'node:fs/promises'
import { isRootKeyText } from '../config.ts'
import { fileProblem } from '../lib/file-problem.ts'
import { FileError } from '../lib/imports/read-import.ts'
import { UsageError } from './usage-error.ts'

/**
 * Reads the root key from a file or from stdin. On the command line, everyone who can list processes would see it.
 * @param path `-` = stdin.
 * @throws UsageError without the text, when it is not a root key; FileError when there is nothing to read.
 */
export async function readRootKey(
  path: string,
  { readStdin = () => Bun.stdin.text() }: { readStdin?: () => Promise<string> } = {},
): Promise<string> {
  const text = (path === '-' ? await readStdin() : await readText(path)).trim()
  if (isRootKeyText(text)) return text
  const where = path === '-' ? 'stdin' : path
  throw new UsageError(
    `--root-key-file: ${where} does not contain a root key; it must be one line of 16 to 256 printable characters without blanks`,
  )
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new FileError(`--root-key-file: ${path} cannot be read: ${fileProblem(cause)}`, { cause })
  }
}
