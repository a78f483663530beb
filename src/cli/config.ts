import { configProblems, type Environment, type Setting, settingsOf } from '../config.ts'
import type { Arguments, Command } from './arguments.ts'

/** Shows the configuration that a server would start with. Secrets are masked; vault keys are shown by their ids. */
export const configCommand: Command = {
  name: 'config',
  about: 'show every setting with its source, secrets masked; exit status 2 if one is wrong',
  isLocal: true,
  tellsUnknownVariables: true,
  notes: 'It reads its own environment: run it with that of the service, such as its EnvironmentFile.',
  example: 'config',
  async run(given) {
    const { environment } = given.terminal
    const settings = settingsOf(environment)
    const problems = configProblems(environment)
    given.print([...table(settings), ...listed(problems)].join('\n'), { settings, problems })
    return problems.length === 0 ? 0 : 2
  },
}

/** The same problems alone, for scripts that install or restart a service. */
export const configCheckCommand: Command = {
  name: 'config check',
  about: 'name everything that is wrong with the configuration; exit status 2 if there is anything',
  isLocal: true,
  tellsUnknownVariables: true,
  example: 'config check',
  run: async (given) => check(given, given.terminal.environment),
}

function check(given: Arguments, environment: Environment | undefined): number {
  const problems = configProblems(environment)
  const isValid = problems.length === 0
  given.print(isValid ? 'the configuration is valid' : listed(problems).join('\n').trim(), {
    isValid,
    problems,
  })
  return isValid ? 0 : 2
}

function table(settings: readonly Setting[]): string[] {
  const rows = settings.map(({ name, value, otherwise, source, path }) => [
    name,
    value ?? `(${otherwise})`,
    path === null ? source : `${source} ${path}`,
  ])
  const width = (column: number) => Math.min(60, Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const [names, values] = [width(0), width(1)]
  return rows.map(([name = '', value = '', source = '']) =>
    `${name.padEnd(names)}  ${value.padEnd(values)}  ${source}`.trimEnd(),
  )
}

const listed = (problems: readonly { message: string }[]): string[] =>
  problems.length === 0 ? [] : ['', ...problems.map(({ message }) => `wrong: ${message}`)]
