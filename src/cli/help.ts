import { DURATION_EXAMPLES, TIME_EXAMPLES } from '../lib/written-time.ts'
import { type Command, type Option, optionsOf } from './arguments.ts'

/** Related commands under a title. */
export type Group = { title: string; commands: readonly Command[] }

/** Output of `tollgate help`. */
export function overviewText(groups: readonly Group[]): string {
  const width = Math.max(...groups.flatMap(({ commands }) => commands.map(({ name }) => name.length)))
  const parts = groups.map(({ title, commands }) => `${title}\n${linesOf(commands, width)}`)
  return `usage: tollgate <command> [options]

${parts.join('\n\n')}

tollgate help <command> shows its arguments, options and an example.
tollgate serve --help lists every environment variable; tollgate --version shows the version.

serve, migrate, config, doctor, backup, restore and root-key rescue run on this machine. The other commands call a running server:
  server:    --url, else TOLLGATE_URL, else HOST and PORT on this machine (http://127.0.0.1:3000)
  root key:  --root-key-file (- = stdin), else TOLLGATE_ROOT_KEY, else the root key that the first start
             wrote into the data dir
--json prints JSON. Errors go to stderr. Exit status: 0 done, 1 refused or failed, 2 usage error.
`
}

/** Output of `tollgate help key`. */
export function groupText(words: string, commands: readonly Command[]): string {
  const width = Math.max(...commands.map(({ name }) => name.length))
  return `usage: tollgate ${words} <command> [options]

${linesOf(commands, width)}

tollgate help <command> shows its arguments, options and an example.
`
}

const linesOf = (commands: readonly Command[], width: number) =>
  commands.map(({ name, about }) => `  ${name.padEnd(width)}  ${about}`).join('\n')

/** Output of `tollgate key create --help`. */
export function helpText(command: Command): string {
  const options = optionsOf(command)
  const parts: [string, (readonly [string, string])[]][] = [
    ['arguments', argumentRows(command)],
    ['options', optionRows(options)],
    ['values', formatsOf(options)],
  ]
  const width = Math.max(...parts.flatMap(([, rows]) => rows.map(([left]) => left.length)))
  const shown = parts
    .filter(([, rows]) => rows.length > 0)
    .map(([title, rows]) => [
      `${title}:`,
      ...rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`),
    ])
  return `usage: ${usageOf(command)}

${capitalized(command.about)}.

${shown.map((lines) => lines.join('\n')).join('\n\n')}

example:
  tollgate ${command.example}
${command.notes === undefined ? '' : `\n${command.notes}\n`}`
}

export const argumentRows = ({ arguments: words = {} }: Command) =>
  Object.entries(words).map(([name, about]) => [`<${name}>`, about] as const)

export const optionRows = (options: Readonly<Record<string, Option>>) =>
  Object.entries(options).map(([name, option]) => [spellingOf(name, option), meaningOf(option)] as const)

export const capitalized = (text: string) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`

export const usageOf = ({ name, arguments: words = {} }: Command): string =>
  ['tollgate', name, ...Object.keys(words).map((word) => `<${word}>`), '[options]'].join(' ')

/** `--credits <n>, --remaining <n>` */
function spellingOf(name: string, { value, alias }: Option): string {
  const one = (text: string) => `--${text}${value === null ? '' : ` ${value}`}`
  return alias === undefined ? one(name) : `${one(name)}, ${one(alias)}`
}

function meaningOf({ about, isRequired, isList }: Option): string {
  return `${about}${isList === true ? '; repeat it for several' : ''}${isRequired === true ? ' (required)' : ''}`
}

/** The formats that these options' values use. */
function formatsOf(options: Readonly<Record<string, Option>>): (readonly [string, string])[] {
  const values = Object.values(options).map(({ value }) => value ?? '')
  return FORMATS.filter(([name]) => values.some((value) => value.includes(name)))
}

/** Kinds of values that can be written in several ways. */
export const FORMATS: readonly (readonly [string, string])[] = [
  ['<time>', `${TIME_EXAMPLES}; UTC unless it has a time zone`],
  ['<duration>', DURATION_EXAMPLES],
  ['<rate>', '<limit>/<window>, such as 100/1m: 100 in each minute; the window is a duration'],
]
