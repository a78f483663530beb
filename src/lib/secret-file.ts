import { readFileSync, statSync } from 'node:fs'
import { fileProblem } from './file-problem.ts'

/** The text of a file that holds one secret, without blanks and line breaks around it. @throws Error saying why there is none. */
export function readSecretFile(path: string): string {
  let text: string
  try {
    if (statSync(path).size > SECRET_BYTES_MAX) throw new Error(`it is larger than ${SECRET_BYTES_MAX} bytes`)
    text = readFileSync(path, 'utf8').trim()
  } catch (cause) {
    throw new Error(fileProblem(cause), { cause })
  }
  if (text === '') throw new Error('it is empty')
  return text
}
const SECRET_BYTES_MAX = 65_536

/** True when every user of this machine can read the file. False when that cannot be told. */
export function isReadByAll(path: string): boolean {
  try {
    return process.platform !== 'win32' && (statSync(path).mode & 0o004) !== 0
  } catch {
    return false
  }
}
