import { unknownVariables } from '../config.ts'
import { nearestWord } from '../lib/nearest.ts'
import { COMMIT, VERSION } from '../lib/version.ts'
import { CALL_OPTIONS, COMMON_OPTIONS, type Command, parse } from './arguments.ts'
import { COMMANDS, GROUPS } from './commands.ts'
import { failureOf, failureText } from './failure.ts'
import { groupText, helpText, overviewText } from './help.ts'
import { serveCommand } from './serve.ts'
import { systemTerminal, type Terminal } from './terminal.ts'
import { UsageError } from './usage-error.ts'

/**
 * Runs a command line; without words, the server.
 * @param typed The words after the program's name.
 * @returns the exit status: 0 done, 1 refused or failed, 2 usage error.
 */
export async function run(typed: readonly string[], terminal: Terminal = systemTerminal): Promise<number> {
  const isJson = typed.includes('--json')
  const words = typed.length === 0 ? ['serve'] : withOptionsLast(typed)
  const [command = null] = COMMANDS.filter(({ name }) => startsWith(words, name)).sort(byLength)
  // A server continues when the reader of its log is gone (log.ts).
  if (command !== serveCommand) terminal.allowClosedReader()
  try {
    if (command === null) return runWithout(words, terminal)
    const rest = words.slice(command.name.split(' ').length)
    if (isHelpAsked(rest)) {
      terminal.out(helpText(command))
      return 0
    }
    // With `--json`, stderr contains only the error.
    if (command.tellsUnknownVariables !== true && !isJson) warnOfUnknownVariables(terminal)
    return (await command.run(parse(command, rest, terminal))) ?? 0
  } catch (cause) {
    const failure = failureOf(cause, { command: command?.name ?? null, listCommand: listCommandOf(command) })
    terminal.err(failureText(failure, { isJson }))
    return failure.exitStatus
  }
}

/** Without a command: help, the version, or a mistake. @throws UsageError */
function runWithout(words: readonly string[], terminal: Terminal): number {
  const [first = '', ...others] = words
  if (first === '--version' || first === '-v') {
    terminal.out(`tollgate ${VERSION} (commit ${COMMIT})\n`)
    return 0
  }
  const isHelp = ['help', '--help', '-h'].includes(first)
  const named = (isHelp ? others : words).filter((word) => !['--help', '-h', '--json'].includes(word))
  if (isHelp || isHelpAsked(words)) {
    terminal.out(helpFor(named))
    return 0
  }
  const [half] = within(named)
  if (half !== undefined)
    throw new UsageError(`${named.join(' ')} is not a complete command`, {
      hint: `tollgate help ${named.join(' ')} lists the commands that begin like this`,
    })
  throw unknownCommand(named)
}

/** Help for one command, a group of commands, or everything. @throws UsageError */
function helpFor(named: readonly string[]): string {
  if (named.length === 0) return overviewText(GROUPS)
  const command = COMMANDS.find(({ name }) => name === named.join(' '))
  if (command !== undefined) return helpText(command)
  const group = within(named)
  if (group.length > 0) return groupText(named.join(' '), group)
  throw unknownCommand(named)
}

/** The message does not repeat the words: a secret may have been typed in place of a command. */
function unknownCommand(named: readonly string[]): UsageError {
  const words = named.filter((word) => !word.startsWith('-'))
  const isShown = words.length > 0 && words.every((word) => /^[a-z][a-z-]{0,24}$/i.test(word))
  const near =
    nearestWord(words.slice(0, 3).join(' '), NAMES) ?? nearestWord(words.slice(0, 2).join(' '), NAMES)
  const group = nearestWord(words[0] ?? '', [...new Set(NAMES.map((name) => name.split(' ')[0] ?? ''))])
  const hint =
    near !== null
      ? `did you mean "tollgate ${near}"?`
      : group !== null
        ? `tollgate help ${group} lists the commands that begin with ${group}`
        : 'tollgate help lists the commands'
  return new UsageError(isShown ? `unknown command "${words.join(' ')}"` : 'unknown command', { hint })
}

const NAMES = COMMANDS.map(({ name }) => name)

/** Commands whose names begin with these words. */
const within = (words: readonly string[]) =>
  words.length === 0 ? [] : COMMANDS.filter(({ name }) => name.startsWith(`${words.join(' ')} `))

const startsWith = (words: readonly string[], name: string) =>
  words.slice(0, name.split(' ').length).join(' ') === name

/** `config check` before `config`. */
const byLength = (a: Command, b: Command) => b.name.length - a.name.length

const isHelpAsked = (words: readonly string[]) => words.includes('--help') || words.includes('-h')

/** `tollgate --url http://… key list`: common options may precede the command. */
function withOptionsLast(typed: readonly string[]): string[] {
  const known = { ...CALL_OPTIONS, ...COMMON_OPTIONS }
  const ahead: string[] = []
  let rest = [...typed]
  for (;;) {
    const [first = '', value] = rest
    const [name = '', inline] = first.split('=', 2)
    const option =
      first.startsWith('--') && Object.hasOwn(known, name.slice(2)) ? known[name.slice(2)] : undefined
    if (option === undefined) return rest.length === 0 ? [...typed] : [...rest, ...ahead]
    const taken = option.value === null || inline !== undefined || value === undefined ? 1 : 2
    ahead.push(...rest.slice(0, taken))
    rest = rest.slice(taken)
  }
}

/** The command that lists the ids that `command` takes; null = there is none. */
function listCommandOf(command: Command | null): string | null {
  if (command === null) return null
  const words = command.name.split(' ').slice(0, -1)
  const name = `${words.join(' ')} list`
  return words.length > 0 && name !== command.name && NAMES.includes(name) ? name : null
}

/** For commands other than the server, which logs unknown variables. */
function warnOfUnknownVariables(terminal: Terminal): void {
  for (const { variable, nearest } of unknownVariables(terminal.environment))
    terminal.err(`${variable} is not a variable of Tollgate and has no effect; did you mean ${nearest}?\n`)
}
