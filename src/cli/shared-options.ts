import type { Arguments, Option } from './arguments.ts'
import { UsageError } from './usage-error.ts'

/* Options with the same meaning in several commands. */

export const NAME = { name: { value: '<text>', about: 'display name' } } satisfies Record<string, Option>

export const MAX_ITEMS = {
  max: { value: '<n>', about: 'maximum number of items; default: all' },
} satisfies Record<string, Option>

export const META = {
  meta: { value: '<json>', about: 'metadata: a JSON object that every verification returns' },
} satisfies Record<string, Option>

export const DESCRIPTION = {
  description: { value: '<text>', about: 'free text' },
} satisfies Record<string, Option>

export const OVERLAP = {
  overlap: {
    value: '<duration>',
    about: 'how long the old one still works; 0: it is refused at once',
    isRequired: true,
  },
} satisfies Record<string, Option>

export const YES = { yes: { value: null, about: 'do not ask for confirmation' } } satisfies Record<
  string,
  Option
>

/** The switch `--id`, for commands whose argument is otherwise a name. @param instead What the argument otherwise is. */
export const IS_ID = (instead: string) =>
  ({ id: { value: null, about: `the argument is an id, not ${instead}` } }) satisfies Record<string, Option>

/** @throws UsageError when nobody can answer. @returns whether to continue; prints a line when the answer is no. */
export function isConfirmed(given: Arguments, question: string, otherwise: string): boolean {
  if (given.has('yes')) return true
  const answer = given.terminal.ask(`${question} This cannot be undone. [y/N]`)
  if (answer === null) throw new UsageError('--yes is required when stdin is not a terminal')
  if (/^y(es)?$/i.test(answer.trim())) return true
  given.terminal.err(`${otherwise}\n`)
  return false
}

/** A change without any field: most likely an option was forgotten. @throws UsageError */
export function requireChange(body: Record<string, unknown>, idFields: readonly string[]): void {
  const isChange = Object.entries(body).some(
    ([field, value]) => value !== undefined && !idFields.includes(field),
  )
  if (!isChange) throw new UsageError('nothing to change; give at least one option')
}
