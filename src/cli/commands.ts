import { ConfigError, unknownVariables } from '../config.ts'
import { StartError } from '../errors.ts'
import { fileProblem } from '../lib/file-problem.ts'
import { VERSION } from '../lib/version.ts'
import { apiCommands } from './api.ts'
import { type Arguments, type Command, parse, ROOT_KEY_FILE, UsageError } from './arguments.ts'
import { benchCommand } from './bench.ts'
import { CallError, useRootKey } from './client.ts'
import { doctorCommand } from './doctor.ts'
import { healthCommand } from './health.ts'
import { identityCommands } from './identity.ts'
import { importCommand } from './import.ts'
import { FileError } from './import-file.ts'
import { keyCommands } from './key.ts'
import { limitCommand } from './limit.ts'
import { migrateCommand } from './migrate.ts'
import { rootKeyCommands } from './root-key.ts'
import { ROOT_KEY_FILE_ABOUT, readRootKey } from './root-key-file.ts'
import { serveCommand } from './serve.ts'
import { errorText } from './text.ts'
import { usageCommand } from './usage.ts'
import { vaultResealCommand } from './vault-reseal.ts'
import { workspaceCommands } from './workspace.ts'

export const COMMANDS: readonly Command[] = [
  serveCommand,
  migrateCommand,
  doctorCommand,
  ...rootKeyCommands,
  ...workspaceCommands,
  ...apiCommands,
  ...keyCommands,
  ...identityCommands,
  limitCommand,
  usageCommand,
  importCommand,
  vaultResealCommand,
  benchCommand,
  healthCommand,
]

/**
 * Runs what was typed; without words, the server. Exit status: 0 done, 1 refused or failed, 2 typed wrongly.
 * @param words What follows the program's name.
 */
export async function runCommand(words: string[]): Promise<void> {
  const [first = 'serve', ...others] = words
  if (first === 'help' && others.length > 0) return await runCommand([...others, '--help'])
  if (first === 'help' || first === '--help' || first === '-h') {
    process.stdout.write(overview())
    return
  }
  if (first === '--version' || first === '-v') {
    process.stdout.write(`tollgate ${VERSION}\n`)
    return
  }
  const typed = words.length === 0 ? ['serve'] : words
  const command = COMMANDS.find(({ name }) => typed.slice(0, name.split(' ').length).join(' ') === name)
  if (command === undefined) {
    const group = COMMANDS.filter(({ name }) => name.startsWith(`${first} `))
    const help = overview(group.length === 0 ? COMMANDS : group)
    const isAsked = group.length > 0 && isHelpAsked(typed.slice(1))
    if (isAsked) process.stdout.write(help)
    else {
      const isHalf = group.length > 0 && typed.length === 1
      const what = isHalf
        ? `${first} is half a command; one of these is meant`
        : `unknown command ${JSON.stringify(typed.join(' '))}`
      process.stderr.write(`${what}\n\n${help}`)
    }
    process.exitCode = isAsked ? 0 : 2
    return
  }
  const rest = typed.slice(command.name.split(' ').length)
  // Whoever reads may have seen enough, such as `head`. A server goes on without its reader (log.ts).
  if (command !== serveCommand)
    process.stdout.on('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code === 'EPIPE') process.exit(0)
    })
  try {
    if (isHelpAsked(rest)) {
      process.stdout.write(helpOf(command))
      return
    }
    if (command !== serveCommand && !rest.includes('--json')) warnOfUnknownVariables()
    const given = parse(command, rest)
    const path = given.text(ROOT_KEY_FILE)
    if (path === '-' && given.positional === '-')
      throw new UsageError(`--${ROOT_KEY_FILE} - and ${command.positional} - both want stdin`)
    if (path !== undefined) useRootKey(await readRootKey(path))
    process.exitCode = (await run(command, given)) ?? 0
  } catch (cause) {
    process.exitCode = report(cause, command, rest.includes('--json'))
  }
}

const run = async (command: Command, given: Arguments): Promise<number | undefined> =>
  (await command.run(given)) ?? undefined

/** A server logs them. With `--json`, stderr holds the one error and nothing else. */
function warnOfUnknownVariables(): void {
  for (const { variable, nearest } of unknownVariables())
    process.stderr.write(
      `${variable} is no variable of Tollgate and has no effect; the nearest is ${nearest}\n`,
    )
}

const isHelpAsked = (words: string[]) => words.includes('--help') || words.includes('-h')

/**
 * What is expected to go wrong takes one line; anything else is our bug and shows where.
 * @returns the exit status.
 */
function report(cause: unknown, command: Command, isJson: boolean): number {
  const isUsage = cause instanceof UsageError
  const isExpected =
    isUsage ||
    cause instanceof CallError ||
    cause instanceof ConfigError ||
    cause instanceof StartError ||
    cause instanceof FileError ||
    (cause instanceof Error && 'syscall' in cause) // a file that is not there, not readable, a folder
  if (!isExpected) throw cause
  const { code, status } = cause instanceof CallError ? cause : { code: null, status: null }
  const text = errorText({ message: messageOf(cause), code, status }, { isJson })
  process.stderr.write(isUsage && !isJson ? `${text}\n\n${helpOf(command)}` : `${text}\n`)
  return isUsage ? 2 : 1
}

const messageOf = (cause: Error): string =>
  'syscall' in cause && 'path' in cause ? `${cause.path}: ${fileProblem(cause)}` : cause.message

function overview(shown = COMMANDS): string {
  const width = Math.max(...shown.map(({ name }) => name.length))
  const lines = shown.map(({ name, about }) => `  ${name.padEnd(width)}  ${about}`)
  return `usage: tollgate <command> [options]

${lines.join('\n')}

tollgate <command> --help tells its options, tollgate serve --help all variables, tollgate --version the version. All but
serve, migrate and doctor call a running server: TOLLGATE_URL says which (default: where HOST and PORT would have it here,
http://127.0.0.1:3000), --root-key-file (- = stdin) or TOLLGATE_ROOT_KEY as whom; without them, the root key that the
first start wrote into the data dir is used. --json prints what programs can read, errors too; those go to stderr.
Exit status: 0 done, 1 refused or failed, 2 typed wrongly.
`
}

function helpOf({ name, about, options = {}, isLocal, notes, positional }: Command): string {
  const rows = Object.entries(options).map(([option, { value, about: meaning, isRequired }]) => [
    `--${option}${value === null ? '' : ` ${value}`}`,
    `${meaning}${isRequired === true ? ' (required)' : ''}`,
  ])
  const rootKey = isLocal === true ? [] : [[`--${ROOT_KEY_FILE} <path>`, ROOT_KEY_FILE_ABOUT]]
  const all = [...rows, ...rootKey, ['--json', 'print what programs can read']]
  const width = Math.max(...all.map(([option = '']) => option.length))
  const lines = all.map(([option = '', meaning]) => `  ${option.padEnd(width)}  ${meaning}`)
  return `usage: tollgate ${name}${positional === undefined ? '' : ` ${positional}`} [options]

${about}

${lines.join('\n')}
${notes === undefined ? '' : `\n${notes}\n`}`
}
