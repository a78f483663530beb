import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from '../../src/cli/arguments.ts'
import { GROUPS } from '../../src/cli/commands.ts'
import { argumentRows, capitalized, optionRows, usageOf } from '../../src/cli/help.ts'
import { STATUSES } from '../../src/doors/v1/statuses.ts'
import { PROBLEMS, TYPE_BASE } from '../../src/doors/v2/problems.ts'
import { ALL_ERRORS } from '../../src/errors.ts'
import { LOG_EVENTS } from '../../src/log-events.ts'
import type { Family } from '../../src/observe/exposition.ts'
import { metricFamilies } from '../../src/observe/metrics.ts'
import { openApiDocument } from '../../src/pages/openapi.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { ALERTS } from '../observe/rules.ts'
import { ROOT } from './blocks.ts'

/**
 * Parts of the reference that are generated from the code's tables. `bun run docs` writes them between `<!-- made -->` and
 * `<!-- end -->`; `made.test.ts` fails when a page is older than its table.
 */
export const MADE: Readonly<Record<string, () => string>> = {
  'docs/reference/errors.md': errorRows,
  'docs/reference/cli.md': commandSections,
  'docs/reference/api.md': methodRows,
  'docs/reference/logs.md': eventRows,
  'docs/how-to/runbook.md': eventSections,
  'docs/how-to/monitoring.md': alertRows,
}

const PART = /(?<=<!-- made -->\n)[\s\S]*(?=<!-- end -->\n)/

/** The page with its generated part. @throws Error when it has no place for that. */
export function pageWithMadePart(path: string): string {
  const text = readFileSync(join(ROOT, path), 'utf8')
  const make = MADE[path]
  if (make === undefined || !PART.test(text)) throw new Error(`${path} has no place for what is made`)
  return text.replace(PART, () => `\n${make()}\n\n`)
}

const METHODS = new Set(allEndpoints.map(({ path }) => path.slice('/v1/'.length)))

const tableOf = (head: string[], rows: string[][]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.map(cellOf).join(' | ')} |`).join('\n')

const cellOf = (text: string): string => markdownOf(text).replaceAll('|', '\\|')

/** Program text as Markdown: special characters outside code are escaped, and names of methods are code. */
const markdownOf = (text: string): string =>
  text
    .split(/(`[^`]*`)/)
    .map((part) =>
      part.startsWith('`')
        ? part
        : part
            .replaceAll(/[<*]/g, '\\$&')
            .replaceAll(/\b[a-zA-Z]+\.[a-zA-Z]+\b/g, (word) => (METHODS.has(word) ? `\`${word}\`` : word)),
    )
    .join('')

function errorRows(): string {
  const statuses: Record<string, number> = STATUSES
  const codes = Object.entries(ALL_ERRORS).map(([code, row]) => ({
    code,
    status: statuses[code] ?? 0,
    ...row,
  }))
  const types = Object.entries(PROBLEMS).map(([code, row]) => ({ code, ...row }))
  const table = (name: string, rows: { code: string; status: number; about: string; remedy: string }[]) =>
    tableOf(
      [name, 'Status', 'Meaning', 'What to do'],
      rows
        .toSorted((one, other) => one.status - other.status)
        .map(({ code, status, about, remedy }) => [`\`${code}\``, String(status), about, remedy]),
    )
  return [
    '## Codes of v1',
    table('Code', codes),
    '## Types of v2',
    `Each follows \`${TYPE_BASE}\`. Your server has a page about it below \`/errors/\`, such as \`/errors/unkey/data/key_not_found\`.`,
    table('Type', types),
  ].join('\n\n')
}

function eventRows(): string {
  const rows = Object.entries(LOG_EVENTS).map(([event, { level, about, remedy }]) => [
    `\`${event}\``,
    level,
    about,
    remedy,
  ])
  return tableOf(['Event', 'Level', 'Meaning', 'What to do'], rows)
}

/** Of what a person may be asked to look at. */
function eventSections(): string {
  return Object.entries(LOG_EVENTS)
    .flatMap(([event, { level, about, remedy }]) => {
      if (level === 'info') return []
      const kind = level === 'error' ? 'Error' : 'Warning'
      return [`### \`${event}\``, `${kind}. ${markdownOf(about)}`, `**What to do:** ${markdownOf(remedy)}`]
    })
    .join('\n\n')
}

/** Of deploy/prometheus/rules.yml. */
function alertRows(): string {
  const rows = ALERTS.map(({ alert, for: lasts, labels, annotations }) => {
    const anchor = annotations.runbook_url.split('#')[1] ?? ''
    const says = annotations.summary
      .replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, '`$1`')
      .replaceAll(/\{\{ \$value [^}]*\}\}/g, '`n`')
    return [`[${alert}](runbook.md#${anchor})`, labels.severity, lasts ?? 'at once', says]
  })
  return tableOf(['Alert', 'Severity', 'After', 'It says'], rows)
}

function methodRows(): string {
  const { paths, tags, 'x-tagGroups': apis } = openApiDocument(allEndpoints, 'http://127.0.0.1:3000')
  const operations = Object.entries(paths).map(([path, { get, post }]) => {
    const operation = get ?? post
    if (operation === undefined) throw new Error(`${path} has no method`)
    return { path, operation, http: [get && 'GET', post && 'POST'].filter(Boolean).join(', ') }
  })
  const groupOf = ({ name, description }: { name: string; description: string }) => {
    const those = operations.filter(({ operation }) => operation.tags.includes(name))
    const rows = those.map(({ path, operation: { summary }, http }) => [
      `\`${path.replace(/^\/v\d\//, '')}\``,
      http,
      summary,
    ])
    return `### ${name}\n\n${description}\n\n${tableOf(['Method', 'HTTP', 'What it does'], rows)}`
  }
  return apis
    .flatMap(({ name, description, tags: own }) => [
      `## ${name}`,
      description,
      ...tags.filter((tag) => own.includes(tag.name)).map(groupOf),
    ])
    .join('\n\n')
}

function commandSections(): string {
  return GROUPS.map(({ title, commands }) =>
    [`## ${title}`, ...commands.map(commandSection)].join('\n\n'),
  ).join('\n\n')
}

function commandSection(command: Command): string {
  const rows = [...argumentRows(command), ...optionRows(command.options ?? {})]
  return [
    `### ${command.name}`,
    `${cellOf(capitalized(command.about))}.`,
    `Usage: \`${usageOf(command)}\``,
    ...(rows.length === 0
      ? []
      : [
          tableOf(
            ['Argument or option', 'Meaning'],
            rows.map(([left, right]) => [`\`${left}\``, right]),
          ),
        ]),
    `Example: \`tollgate ${command.example}\``,
  ].join('\n\n')
}

/** All metrics, including those without a sample yet. */
export const METRIC_FAMILIES: readonly Family[] = [
  ...metricFamilies({
    threads: [],
    shards: [],
    limiterBytesMax: 0,
    database: 'ok',
    databaseStatus: null,
    fleetMembers: null,
    fullest: [],
    state: 'ready',
    process: { startedAtMs: 0, cpuSeconds: 0, residentBytes: 0, openFiles: null, openFilesMax: null },
    dataDir: null,
  }),
]

if (import.meta.main)
  for (const path of Object.keys(MADE)) writeFileSync(join(ROOT, path), pageWithMadePart(path))
