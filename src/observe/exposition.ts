/*
 * Prometheus' text format, version 0.0.4. Not `prom-client` (15.1.3): its metrics cannot be set to numbers that other
 * threads counted, so only its printing would be used, and it has had no release since 2024.
 */

export type Labels = Record<string, string | number>

/** One metric with its samples, which may be generated while they are written. */
export type Family = {
  name: string
  help: string
  type: 'counter' | 'gauge' | 'histogram'
  samples: Iterable<Sample>
}
/** `suffix` is added to the metric's name for parts of a histogram: `_bucket`, `_sum`, `_count`. */
export type Sample = { labels?: Labels; value: number; suffix?: string }

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * Writes the families that have samples. A scrape may have thousands of samples, and the first one of a process takes ten
 * times as long as later ones. So the thread is free for requests after every few samples.
 * @param options.breathe Resolves after waiting requests had their turn.
 */
export async function exposition(
  families: Iterable<Family>,
  { breathe }: { breathe: () => Promise<void> } = { breathe: nextTurn },
): Promise<string> {
  let text = ''
  let sinceBreath = 0
  for (const { name, help, type, samples } of families) {
    let isFirst = true
    for (const { labels = {}, value, suffix = '' } of samples) {
      if (++sinceBreath > SAMPLES_PER_TURN) {
        sinceBreath = 1
        await breathe()
      }
      if (isFirst)
        text += `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}\n# TYPE ${name} ${type}\n`
      isFirst = false
      text += `${name}${suffix}${labelText(labels)} ${value}\n`
    }
  }
  return text
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** Takes about 0.02 ms, 0.3 ms the first time. */
export const SAMPLES_PER_TURN = 50

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
 * @param counts Values in each interval, not cumulative; one more than `bounds`.
 */
export function* histogramSamples(
  labels: Labels,
  { bounds, counts, sum }: { bounds: readonly number[]; counts: readonly number[]; sum: number },
): Generator<Sample, void> {
  let below = 0
  for (const [index, count] of counts.entries()) {
    below += count
    yield { suffix: '_bucket', labels: { ...labels, le: bounds[index] ?? '+Inf' }, value: below }
  }
  yield { suffix: '_sum', labels, value: sum }
  yield { suffix: '_count', labels, value: below }
}
