import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { dayAndTime, exact, short, utc } from '../format.ts'
import { Button } from './controls.tsx'
import { CsvButton } from './save-csv.tsx'
import { niceTop } from './scale.ts'
import { TimesTable } from './times-table.tsx'

export type Series = { name: string; className: string; values: readonly number[] }

/**
 * Stacked bars over time, from zero. Pointer or arrow keys read a bar out; the legend hides series; a table has the exact
 * numbers.
 */
export function Bars({
  label,
  times,
  series,
  file,
}: {
  label: string
  /** Start of each bar, Unix ms. */
  times: readonly number[]
  series: readonly Series[]
  /** Name of the CSV file. */
  file: string
}) {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [at, setAt] = useState<number | null>(null)
  const [isTable, setTable] = useState(false)
  const [width, ref] = useWidth()
  const id = useId()
  const used = series.filter(({ values }) => values.some((value) => value > 0))
  const shown = used.filter(({ name }) => !hidden.has(name))
  const totals = times.map((_, index) => shown.reduce((sum, { values }) => sum + (values[index] ?? 0), 0))
  const top = niceTop(Math.max(0, ...totals))
  const plot = { left: 44, right: 4, top: 8, height: 160 }
  const inner = Math.max(1, width - plot.left - plot.right)
  const step = inner / Math.max(1, times.length)
  const y = (value: number) => plot.top + plot.height * (1 - value / top)
  const read = at === null ? null : (times[at] ?? null)
  const move = (to: number) => setAt(Math.min(times.length - 1, Math.max(0, to)))
  return (
    <figure class="chart">
      <div
        ref={ref}
        class="plot"
        role="slider"
        tabIndex={0}
        aria-label={`${label}: left and right read the hours out`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, times.length - 1)}
        aria-valuenow={at ?? times.length - 1}
        aria-valuetext={readOut(at ?? times.length - 1, times, shown)}
        onKeyDown={(event) => {
          const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
          if (by === undefined) return
          event.preventDefault()
          move((at ?? times.length) + by)
        }}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect()
          move(Math.floor((event.clientX - box.left - plot.left) / step))
        }}
        onPointerLeave={() => setAt(null)}
        onBlur={() => setAt(null)}
      >
        <svg width={width} height={plot.top + plot.height + 24} aria-hidden="true">
          <defs>
            <pattern id={id} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect class="stripe" width="2" height="5" />
            </pattern>
          </defs>
          {[0, 1, 2, 3, 4].map((line) => (
            <g key={line}>
              <line
                class="grid"
                x1={plot.left}
                x2={width - plot.right}
                y1={y((top * line) / 4)}
                y2={y((top * line) / 4)}
              />
              <text class="tick" x={plot.left - 8} y={y((top * line) / 4) + 4} text-anchor="end">
                {short((top * line) / 4)}
              </text>
            </g>
          ))}
          {at !== null && (
            <rect class="reading" x={plot.left + at * step} y={plot.top} width={step} height={plot.height} />
          )}
          {times.map((time, index) => {
            let base = 0
            return (
              <g key={time}>
                {shown.map(({ name, className, values }) => {
                  const value = values[index] ?? 0
                  if (value === 0) return null
                  const [low, high] = [y(base), y(base + value)]
                  base += value
                  // A single refusal among a million is still a line.
                  const height = Math.max(1, low - high)
                  const box = {
                    x: plot.left + index * step + step * 0.12,
                    y: low - height,
                    width: Math.max(1, step * 0.76),
                    height,
                  }
                  return (
                    <g key={name}>
                      <rect class={`bar ${className}`} {...box} />
                      {className.includes('striped') && <rect {...box} fill={`url(#${id})`} />}
                    </g>
                  )
                })}
              </g>
            )
          })}
          {ticksOf(times, Math.max(2, Math.floor(inner / TICK_WIDTH)))
            .filter(({ index }) => plot.left + index * step + TICK_WIDTH <= width)
            .map(({ index, text }) => (
              <text key={index} class="tick" x={plot.left + index * step} y={plot.top + plot.height + 18}>
                {text}
              </text>
            ))}
        </svg>
      </div>
      <p class="readout" aria-hidden="true">
        {read === null || at === null ? '\u00a0' : readOut(at, times, shown)}
      </p>
      <figcaption>
        <ul class="legend">
          {used.map(({ name, className, values }) => (
            <li key={name}>
              <button
                type="button"
                aria-pressed={!hidden.has(name)}
                onClick={() => {
                  const next = new Set(hidden)
                  if (!next.delete(name)) next.add(name)
                  setHidden(next)
                }}
              >
                <span class={`swatch ${className}`} aria-hidden="true" />
                {name} <b>{exact(values.reduce((sum, value) => sum + value, 0))}</b>
              </button>
            </li>
          ))}
        </ul>
        <div class="actions">
          <Button kind="quiet" onClick={() => setTable(!isTable)}>
            {isTable ? 'Hide table' : 'Show as table'}
          </Button>
          <CsvButton file={file} rows={tableOf(times, used)} />
        </div>
      </figcaption>
      {isTable && (
        <TimesTable
          label={label}
          head="Hour"
          times={times}
          timeText={dayAndTime}
          columns={used.map(({ name, values }) => ({ name, text: (index) => exact(values[index] ?? 0) }))}
        />
      )}
    </figure>
  )
}

/** Room for `29 Nov, 02:00` and the gap after it. */
const TICK_WIDTH = 96

const tableOf = (times: readonly number[], series: readonly Series[]): string[][] => [
  ['hour', ...series.map(({ name }) => name)],
  ...times.map((time, index) => [utc(time), ...series.map(({ values }) => String(values[index] ?? 0))]),
]

function readOut(at: number, times: readonly number[], series: readonly Series[]): string {
  const time = times[at]
  if (time === undefined) return 'no data'
  const parts = series.filter(({ values }) => (values[at] ?? 0) > 0)
  const counts = parts.map(({ name, values }) => `${name} ${exact(values[at] ?? 0)}`)
  return `${dayAndTime(time)}: ${counts.length === 0 ? 'none' : counts.join(', ')}`
}

/** Hours of the day that fit, and the day where it begins. */
function ticksOf(times: readonly number[], count: number): { index: number; text: string }[] {
  const every = Math.max(1, Math.ceil(times.length / count))
  return times.flatMap((time, index) =>
    index % every === 0 ? [{ index, text: dayAndTime(time).replace(/ \d{4},/, ',') }] : [],
  )
}

/** Drawn to the width that there is: scaled text could not be read on a phone. */
function useWidth() {
  const ref = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(600)
  useEffect(() => {
    const element = ref.current
    if (element === null) return
    const seen = new ResizeObserver(([entry]) => {
      if (entry !== undefined) setWidth(Math.max(200, Math.floor(entry.contentRect.width)))
    })
    seen.observe(element)
    return () => seen.disconnect()
  }, [])
  return [width, ref] as const
}
