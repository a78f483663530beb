/*
 * Prometheus' text format, version 0.0.4. `prom-client` (15.1.3) was refused: its counters and histograms cannot be set
 * to numbers that other threads counted, so only its printing would be used, and it has had no release since 2024.
 */

export type Labels = Record<string, string | number>

/** One metric with all its samples. */
export type Family = {
  name: string
  help: string
  type: 'counter' | 'gauge' | 'histogram'
  samples: Sample[]
}
/** `suffix` is what a histogram's parts add to the name: `_bucket`, `_sum`, `_count`. */
export type Sample = { labels?: Labels; value: number; suffix?: string }

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** Families without samples are left out. */
export function exposition(families: readonly Family[]): string {
  const lines: string[] = []
  for (const { name, help, type, samples } of families) {
    if (samples.length === 0) continue
    lines.push(
      `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`,
      `# TYPE ${name} ${type}`,
    )
    for (const { labels = {}, value, suffix = '' } of samples)
      lines.push(`${name}${suffix}${labelText(labels)} ${value}`)
  }
  return `${lines.join('\n')}\n`
}

/** A scrape has a thousand of these, and requests wait meanwhile: hence no lists in between. */
function labelText(labels: Labels): string {
  let text = ''
  for (const name in labels)
    text += `${text === '' ? '{' : ','}${name}="${escapeLabel(String(labels[name]))}"`
  return text === '' ? '' : `${text}}`
}

const escapeLabel = (text: string) =>
  /[\\"\n]/.test(text) ? text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n') : text

/**
 * The samples of one histogram.
 * @param bounds Upper bounds, ascending.
 * @param counts How many values fell in each interval, not cumulative; one more than bounds.
 */
export function histogramSamples(
  labels: Labels,
  { bounds, counts, sum }: { bounds: readonly number[]; counts: readonly number[]; sum: number },
): Sample[] {
  let below = 0
  const buckets = counts.map((count, index): Sample => {
    below += count
    return { suffix: '_bucket', labels: { ...labels, le: bounds[index] ?? '+Inf' }, value: below }
  })
  return [...buckets, { suffix: '_sum', labels, value: sum }, { suffix: '_count', labels, value: below }]
}
