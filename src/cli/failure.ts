import { ConfigError } from '../config.ts'
import { ALL_ERRORS, StartError } from '../errors.ts'
import { fileProblem } from '../lib/file-problem.ts'
import { FileError } from '../lib/imports/read-import.ts'
import { CallError } from './client.ts'
import { visible } from './text.ts'
import { UsageError } from './usage-error.ts'

/** An error, as shown to people or programs. */
export type Failure = {
  message: string
  /** What to do about it; null = the message says so. */
  hint: string | null
  code: string | null
  status: number | null
  requestId: string | null
  /** Exit status: 1 refused or failed, 2 usage error. */
  exitStatus: 1 | 2
}

/**
 * Expected errors say what to do. Any other error is a bug of this program, and shows where.
 * @param command Its name, or null. `listCommand` shows the ids that it takes.
 */
export function failureOf(
  cause: unknown,
  { command, listCommand }: { command: string | null; listCommand: string | null },
): Failure {
  const none = { code: null, status: null, requestId: null, hint: null, exitStatus: 1 as const }
  const help =
    command === null ? 'tollgate help lists the commands' : `tollgate help ${command} shows its usage`
  if (cause instanceof UsageError)
    return { ...none, message: cause.message, hint: cause.hint ?? help, exitStatus: 2 }
  if (cause instanceof CallError) {
    const { message, code, status, requestId } = cause
    return {
      ...none,
      message,
      code,
      status,
      requestId,
      hint: cause.hint ?? hintOf(code, { help, listCommand }),
    }
  }
  // One line each: supervisors keep only the last line of a failed start.
  if (cause instanceof ConfigError || cause instanceof StartError || cause instanceof FileError)
    return { ...none, message: cause.message }
  // A file that is missing, unreadable, or a folder.
  if (cause instanceof Error && 'syscall' in cause) {
    const place = 'path' in cause ? `${cause.path}: ` : ''
    return { ...none, message: `${place}${fileProblem(cause)}` }
  }
  return {
    ...none,
    message: `bug in Tollgate: ${cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause)}`,
    hint: `please report it with this location: ${placeOf(cause)}`,
  }
}

function hintOf(
  code: string | null,
  { help, listCommand }: { help: string; listCommand: string | null },
): string | null {
  switch (code) {
    case null:
      return 'check that the address is a Tollgate server'
    case 'BAD_REQUEST':
      return help
    case 'DELETE_PROTECTED':
      return 'tollgate api update <API id> --unprotect switches off delete protection'
    case 'INSUFFICIENT_PERMISSIONS':
      return 'use a root key that has the permission, or add the permission: tollgate help root-key update'
    case 'NOT_FOUND':
      return listCommand === null ? help : `tollgate ${listCommand} shows what exists`
    default:
      return new Map(Object.entries(ALL_ERRORS)).get(code)?.remedy ?? null
  }
}

/** The place of the throw, such as `src/cli/key.ts:12`. */
function placeOf(cause: unknown): string {
  const frames = cause instanceof Error ? (cause.stack ?? '') : ''
  return /(?:src|node_modules)\/[^\s()]+?:\d+/.exec(frames)?.[0] ?? 'unknown'
}

/** The text for stderr: one line, and one for the hint. With `--json` one line of JSON. */
export function failureText(failure: Failure, { isJson }: { isJson: boolean }): string {
  const { exitStatus: _, ...told } = failure
  if (isJson) return `${JSON.stringify({ error: told })}\n`
  const { message, hint, requestId } = failure
  const request = requestId === null ? '' : ` (request ${requestId})`
  return `${visible(message)}${request}\n${hint === null ? '' : `hint: ${hint}\n`}`
}
