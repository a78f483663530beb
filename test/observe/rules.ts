import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The rules of deploy/prometheus/rules.yml, and what their queries name. */

export const PROMETHEUS = join(import.meta.dir, '../../deploy/prometheus')
/** Its tests. */
export const RULE_TESTS = ['rules.test.yml', 'rules-hours.test.yml']

export type Alert = {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; runbook_url: string }
}
export type Recorded = { record: string; expr: string }

export const readYaml = (name: string): unknown =>
  Bun.YAML.parse(readFileSync(join(PROMETHEUS, name), 'utf8'))

const { groups } = readYaml('rules.yml') as { groups: { rules: (Alert | Recorded)[] }[] } // promtool checks the form
const rules = groups.flatMap((group) => group.rules)
export const ALERTS: readonly Alert[] = rules.filter((rule) => 'alert' in rule)
export const RECORDED: readonly Recorded[] = rules.filter((rule) => 'record' in rule)

/** Gets installed by `.ci/run`; null = its tests are skipped. */
export const PROMTOOL = Bun.which('promtool')
if (PROMTOOL === null) console.warn('skipped: no promtool')

/** What a query reads: each series, with the labels that are compared there, and the labels by which it groups. */
export function readBy(query: string): { series: { name: string; labels: string[] }[]; groups: string[] } {
  const plain = query.replaceAll(/"[^"]*"/g, '""')
  const series = [...plain.matchAll(/\b((?:job:)?tollgate_[\w:]+|process_\w+|up\b)(?:\{([^}]*)\})?/g)].map(
    ([, name = '', labels = '']) => ({
      name,
      labels: [...labels.matchAll(/(\w+)\s*[=!]/g)].map(([, label = '']) => label),
    }),
  )
  const groups = [...plain.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, names = '']) =>
    names.split(/\s*,\s*/),
  )
  return { series, groups }
}

/** Labels that Prometheus adds to every series. */
export const OF_SCRAPE = ['job', 'instance']
