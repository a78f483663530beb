import { parseArgs } from 'node:util'
import { ConfigError, readClientConfig } from '../config.ts'
import { nearestWord } from '../lib/nearest.ts'
import { DURATION_EXAMPLES, parseDuration, parseTime, TIME_EXAMPLES } from '../lib/written-time.ts'
import { Client } from './client.ts'
import { readRootKey } from './root-key-file.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usage-error.ts'

export type Option = {
  /** The value's name in the help: `<text>`; null = the option is a switch. */
  value: string | null
  about: string
  isRequired?: boolean
  /** True: may be given several times. */
  isList?: boolean
  /** An older name of the same option. */
  alias?: string
  /** The argument that the option can be given instead of, as in earlier releases without the argument. */
  standsFor?: string
}

/** One command. The help and the reference are made from it. */
export type Command = {
  /** As typed: `key create`. */
  name: string
  /** One sentence about its purpose. */
  about: string
  /** Required words after the name: name → description. */
  arguments?: Readonly<Record<string, string>>
  options?: Readonly<Record<string, Option>>
  /** True: it calls no server, so it needs no root key. */
  isLocal?: boolean
  /** True: it reports mistyped variables itself. */
  tellsUnknownVariables?: boolean
  /** Text of the help below the options. */
  notes?: string
  /** A complete command line to copy. A test runs each. */
  example: string
  /** @returns the exit status; undefined = 0. */
  run(given: Arguments): Promise<number | undefined> | Promise<void>
}

type Values = Record<string, string | boolean | (string | boolean)[] | undefined>

/** The words and options after a command's name. */
export class Arguments {
  readonly isJson: boolean
  /** Start of the command, Unix ms. Durations such as `30d` are counted from it. */
  readonly now = Date.now()
  readonly terminal: Terminal
  readonly #command: Command
  readonly #values: Values
  readonly #words: ReadonlyMap<string, string>

  constructor(
    command: Command,
    read: { values: Values; words: ReadonlyMap<string, string>; terminal: Terminal },
  ) {
    this.#command = command
    this.#values = read.values
    this.#words = read.words
    this.terminal = read.terminal
    this.isJson = read.values.json === true
  }

  /** An argument of the command. {@link parse} has checked that it is there. */
  argument(name: string): string {
    const word = this.#words.get(name)
    if (word === undefined) throw new Error(`${this.#command.name} has no argument ${name}`)
    return word
  }

  text(name: string): string | undefined {
    const value = this.#values[name]
    return typeof value === 'string' ? value : undefined
  }

  /** For a change: an empty text clears the field, as null does in the API. */
  textOrNull(name: string): string | null | undefined {
    const text = this.text(name)
    return text === '' ? null : text
  }

  /** An option that {@link parse} has checked to be there. */
  required(name: string): string {
    const value = this.text(name)
    if (value === undefined) throw new UsageError(`--${name} is required`)
    return value
  }

  list(name: string): string[] {
    const value = this.#values[name]
    return Array.isArray(value) ? value.map(String) : []
  }

  /** Undefined when absent. A single empty text is an empty list. */
  listOrNone(name: string): string[] | undefined {
    const list = this.list(name)
    if (list.length === 0) return undefined
    return list.length === 1 && list[0] === '' ? [] : list
  }

  has(name: string): boolean {
    return this.#values[name] === true
  }

  /** True, or undefined to leave the API's default. */
  flag(name: string): true | undefined {
    return this.has(name) || undefined
  }

  /** The value of `--enable` or `--disable`. @throws UsageError when both are given. */
  enabled(): boolean | undefined {
    if (this.has('enable') && this.has('disable'))
      throw new UsageError('give --enable or --disable, not both')
    return this.has('enable') ? true : this.has('disable') ? false : undefined
  }

  /** A whole number. @throws UsageError for anything else, and below `min`. */
  whole(name: string, min = 0): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (Number.isSafeInteger(value) && value >= min) return value
    throw new UsageError(`--${name} is ${quoted(text)}; it must be a whole number of at least ${min}`)
  }

  /** As {@link whole}; null for `word`. @throws UsageError */
  wholeOrNull(name: string, word: string): number | null | undefined {
    return this.text(name) === word ? null : this.whole(name)
  }

  /** A duration in ms. @throws UsageError */
  duration(name: string, min = 1): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const ms = parseDuration(text)
    if (ms !== null && ms >= min) return ms
    throw new UsageError(`--${name} is ${quoted(text)}; it must be a duration: ${DURATION_EXAMPLES}`)
  }

  /** A time in Unix ms. @throws UsageError */
  time(name: string, durationsGo: 'forward' | 'back'): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const ms = parseTime(text, { now: this.now, durationsGo })
    if (ms !== null) return ms
    throw new UsageError(`--${name} is ${quoted(text)}; it must be a time: ${TIME_EXAMPLES}`)
  }

  /** The end of something, Unix ms; null = never, in a change. @throws UsageError */
  end(name: string): number | null | undefined {
    return this.text(name) === 'never' ? null : this.time(name, 'forward')
  }

  /** A JSON object. @throws UsageError for anything else, without repeating the text. */
  object(name: string): Record<string, unknown> | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    try {
      const value: unknown = JSON.parse(text)
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
    } catch {
      // reported below
    }
    throw new UsageError(`--${name} is not a JSON object; write one such as '{"plan":"pro"}'`)
  }

  /**
   * A client for the server and root key that were given.
   * @param options.isAnonymous Without a root key, for what anybody may ask.
   * @throws UsageError
   */
  async client({ isAnonymous = false } = {}): Promise<Client> {
    const url = this.text(URL_OPTION) ?? null
    const path = isAnonymous ? undefined : this.text(ROOT_KEY_FILE)
    const rootKey =
      path === undefined ? null : await readRootKey(path, { readStdin: this.terminal.readStdin })
    try {
      return new Client(readClientConfig(this.terminal.environment, { url, isAnonymous }), { rootKey })
    } catch (cause) {
      throw url !== null && cause instanceof ConfigError && cause.message.startsWith('--url')
        ? new UsageError(cause.message)
        : cause
    }
  }

  /** Prints the data as JSON with `--json`, otherwise the text. */
  print(text: string, data: unknown): void {
    this.terminal.out(this.isJson ? `${JSON.stringify(data)}\n` : `${text}\n`)
  }
}

/** The text in quotes, cut when it is long. */
export const quoted = (text: string) =>
  JSON.stringify(text.length > QUOTED_MAX ? `${text.slice(0, QUOTED_MAX)}…` : text)
const QUOTED_MAX = 60

export const URL_OPTION = 'url'
export const ROOT_KEY_FILE = 'root-key-file'

/** Options of every command that calls a server. */
export const CALL_OPTIONS: Readonly<Record<string, Option>> = {
  [URL_OPTION]: {
    value: '<url>',
    about: 'URL of the server to call; default: TOLLGATE_URL, else HOST and PORT, else http://127.0.0.1:3000',
  },
  [ROOT_KEY_FILE]: {
    value: '<path>',
    about:
      'file with the root key to call with, or - for stdin; default: TOLLGATE_ROOT_KEY, else the root-key file of the data dir',
  },
}
/** Options of every command. */
export const COMMON_OPTIONS: Readonly<Record<string, Option>> = {
  json: { value: null, about: 'print JSON, errors too' },
}

/** All options of one command. */
export const optionsOf = ({ options = {}, isLocal }: Command): Readonly<Record<string, Option>> => ({
  ...options,
  ...(isLocal === true ? {} : CALL_OPTIONS),
  ...COMMON_OPTIONS,
})

/** @throws UsageError */
export function parse(command: Command, words: string[], terminal: Terminal): Arguments {
  const known = optionsOf(command)
  const aliases = Object.entries(known).flatMap(([name, { alias }]) =>
    alias === undefined ? [] : [[alias, name] as const],
  )
  const types = Object.fromEntries([
    ...Object.entries(known).flatMap(([name, { value, alias, isList = false }]) => {
      const type = { type: value === null ? ('boolean' as const) : ('string' as const), multiple: isList }
      return [[name, type] as const, ...(alias === undefined ? [] : [[alias, type] as const])]
    }),
  ])
  const { values, positionals, tokens } = parseArgs({
    args: words,
    options: types,
    allowPositionals: true,
    strict: false, // reports problems below, in our words
    tokens: true,
  })
  for (const token of tokens) if (token.kind === 'option') checkOption(token, types)
  for (const [alias, name] of aliases) {
    if (values[alias] === undefined) continue
    if (values[name] !== undefined)
      throw new UsageError(`--${name} and --${alias} are the same option; give one`)
    values[name] = values[alias]
  }
  const read = readWords(command, positionals, values)
  for (const [name, { isRequired }] of Object.entries(known))
    if (isRequired === true && values[name] === undefined) throw new UsageError(`--${name} is required`)
  if (values[ROOT_KEY_FILE] === '-' && [...read.values()].includes('-'))
    throw new UsageError(`--${ROOT_KEY_FILE} - and the argument - both read stdin; give only one of them`)
  return new Arguments(command, { values, words: read, terminal })
}

/** Messages never repeat the words: a surplus word may be a secret. @throws UsageError */
function readWords(command: Command, positionals: string[], values: Values): Map<string, string> {
  const names = Object.keys(command.arguments ?? {})
  const found = new Map<string, string>()
  for (const [option, { standsFor }] of Object.entries(command.options ?? {})) {
    const value = values[option]
    if (standsFor !== undefined && typeof value === 'string') found.set(standsFor, value)
  }
  const wanted = names.filter((name) => !found.has(name))
  const missing = wanted[positionals.length]
  if (missing !== undefined) throw new UsageError(`<${missing}> is missing`)
  if (positionals.length > wanted.length) {
    const takes = names.length === 0 ? 'no argument' : names.map((name) => `<${name}>`).join(' ')
    const more = positionals.length - wanted.length
    throw new UsageError(
      `${more === 1 ? 'one argument' : `${more} arguments`} too many; the command takes ${takes}`,
    )
  }
  for (const [index, name] of wanted.entries()) found.set(name, positionals[index] ?? '')
  return found
}

/** Messages never repeat the value: it may be a secret. @throws UsageError */
function checkOption(
  token: { name: string; rawName: string; value?: string | undefined; inlineValue?: boolean | undefined },
  options: Record<string, { type: 'boolean' | 'string' }>,
): void {
  const { name, rawName, value, inlineValue } = token
  const type = Object.hasOwn(options, name) ? options[name]?.type : undefined
  if (type === undefined) throw unknownOption(rawName, Object.keys(options))
  if (type === 'boolean') {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`)
    return
  }
  if (value === undefined) throw new UsageError(`${rawName} needs a value`)
  // In `--name --json` the value was most likely forgotten. A single `-` means stdin.
  if (inlineValue === false && value.length > 1 && value.startsWith('-'))
    throw new UsageError(`${rawName} needs a value; write a value that begins with "-" as ${rawName}=<value>`)
}

function unknownOption(rawName: string, known: readonly string[]): UsageError {
  if (rawName === '--root-key' && known.includes(ROOT_KEY_FILE))
    return new UsageError(`unknown option ${rawName}`, {
      hint: 'other users of this machine could see a root key on the command line: use --root-key-file <path>, --root-key-file - (stdin), or TOLLGATE_ROOT_KEY',
    })
  const near = nearestWord(rawName.replace(/^-+/, ''), known)
  return new UsageError(`unknown option ${rawName}`, near === null ? {} : { hint: `did you mean --${near}?` })
}
