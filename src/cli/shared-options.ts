import type { Arguments, Option } from './arguments.ts'
import { UsageError } from './usage-error.ts'

/* Options that mean the same in several commands. */

export const NAME = { name: { value: '<text>', about: 'for people' } } satisfies Record<string, Option>

export const MAX_ITEMS = {
  max: { value: '<n>', about: 'list so many at most; default: all' },
} satisfies Record<string, Option>

export const META = {
  meta: { value: '<json>', about: 'a JSON object that every verification shows' },
} satisfies Record<string, Option>

export const DESCRIPTION = {
  description: { value: '<text>', about: 'for people' },
} satisfies Record<string, Option>

export const YES = { yes: { value: null, about: 'do it without asking' } } satisfies Record<string, Option>

/** What is given as an argument is named by its id. */
export const IS_ID = (instead: string) =>
  ({ id: { value: null, about: `the argument is an id, not ${instead}` } }) satisfies Record<string, Option>

/** @throws UsageError where nobody can be asked. @returns whether to go on; a no is told. */
export function isConfirmed(given: Arguments, question: string, otherwise: string): boolean {
  if (given.has('yes')) return true
  const answer = given.terminal.ask(`${question} This cannot be undone. [y/N]`)
  if (answer === null) throw new UsageError('--yes is required where nobody can be asked')
  if (/^y(es)?$/i.test(answer.trim())) return true
  given.terminal.err(`${otherwise}\n`)
  return false
}

/** A change that changes nothing has most likely forgotten its option. @throws UsageError */
export function requireChange(body: Record<string, unknown>, idFields: readonly string[]): void {
  const isChange = Object.entries(body).some(
    ([field, value]) => value !== undefined && !idFields.includes(field),
  )
  if (!isChange) throw new UsageError('nothing to change: give at least one option')
}
