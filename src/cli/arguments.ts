import { parseArgs } from 'node:util'

/** What was typed wrongly: the command line ends with status 2 and says how it is used. */
export class UsageError extends Error {
  override name = 'UsageError'
}

export type Option = {
  /** What stands after the name in the help: `<text>`; null = the option is a switch. */
  value: string | null
  about: string
  isRequired?: boolean
  /** May be given several times. */
  isList?: boolean
}

/** One command: its words, its options, what it does. */
export type Command = {
  /** As typed: `key create`. */
  name: string
  about: string
  options?: Record<string, Option>
  /** It calls no server, so it needs no root key. */
  isLocal?: boolean
  /** What the help tells below the options. */
  notes?: string
  /** One word after the name, as the help shows it: `<file>`. */
  positional?: string
  /** @returns the exit status; nothing = 0. */
  run(given: Arguments): Promise<number | undefined> | Promise<void>
}

/** What was typed after a command's name, read by its options. */
export class Arguments {
  readonly isJson: boolean

  constructor(
    private readonly values: Record<string, string | boolean | (string | boolean)[] | undefined>,
    /** The word after the name, where the command wants one. */
    readonly positional: string,
  ) {
    this.isJson = values.json === true
  }

  text(name: string): string | undefined {
    const value = this.values[name]
    return typeof value === 'string' ? value : undefined
  }

  /** Of an option that {@link parse} has checked to be there. */
  required(name: string): string {
    const value = this.text(name)
    if (value === undefined) throw new UsageError(`--${name} is required`)
    return value
  }

  list(name: string): string[] {
    const value = this.values[name]
    return Array.isArray(value) ? value.map(String) : []
  }

  has(name: string): boolean {
    return this.values[name] === true
  }

  /** @throws UsageError unless a whole number from `min` on. */
  whole(name: string, min = 0): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (Number.isSafeInteger(value) && value >= min) return value
    throw new UsageError(`--${name} is ${JSON.stringify(text)}; it wants a whole number of at least ${min}`)
  }

  /** Prints the data as JSON with `--json`, else the text. */
  print(text: string, data: unknown): void {
    process.stdout.write(this.isJson ? `${JSON.stringify(data)}\n` : `${text}\n`)
  }
}

/** Of every command that calls a server. */
export const ROOT_KEY_FILE = 'root-key-file'

/** @throws UsageError */
export function parse(command: Command, words: string[]): Arguments {
  const options = Object.fromEntries([
    ...Object.entries(command.options ?? {}).map(([name, { value, isList = false }]) => [
      name,
      { type: value === null ? ('boolean' as const) : ('string' as const), multiple: isList },
    ]),
    ...(command.isLocal === true ? [] : [[ROOT_KEY_FILE, { type: 'string' as const }]]),
    ['json', { type: 'boolean' as const }],
    ['help', { type: 'boolean' as const, short: 'h' }],
  ])
  const { values, positionals, tokens } = parseArgs({
    args: words,
    options,
    allowPositionals: true,
    strict: false, // its own refusals are in the runtime's words
    tokens: true,
  })
  for (const token of tokens) if (token.kind === 'option') checkOption(token, options)
  const wanted = command.positional === undefined ? 0 : 1
  if (values.help !== true) {
    if (positionals.length < wanted) throw new UsageError(`${command.positional} is missing`)
    if (positionals.length > wanted)
      throw new UsageError(`${JSON.stringify(positionals[wanted])} is one word too many`)
    for (const [name, { isRequired }] of Object.entries(command.options ?? {}))
      if (isRequired === true && values[name] === undefined) throw new UsageError(`--${name} is required`)
  }
  return new Arguments(values, positionals[0] ?? '')
}

/** The value is never repeated: it may be a secret. @throws UsageError */
function checkOption(
  token: { name: string; rawName: string; value?: string | undefined; inlineValue?: boolean | undefined },
  options: Record<string, { type: 'boolean' | 'string' }>,
): void {
  const { name, rawName, value, inlineValue } = token
  const type = Object.hasOwn(options, name) ? options[name]?.type : undefined
  if (type === undefined) throw new UsageError(`unknown option ${rawName}`)
  if (type === 'boolean') {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`)
    return
  }
  if (value === undefined) throw new UsageError(`${rawName} needs a value`)
  // `--name --json` has more likely forgotten the value than named something "--json"; `-` alone is stdin.
  if (inlineValue === false && value.length > 1 && value.startsWith('-'))
    throw new UsageError(`${rawName} needs a value; one that begins with "-" is written ${rawName}=<value>`)
}
