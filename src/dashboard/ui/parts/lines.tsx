import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { clock, dayAndTime, utc } from '../format.ts'
import { Button } from './controls.tsx'
import { CsvButton } from './save-csv.tsx'
import { niceTop } from './scale.ts'
import { TimesTable } from './times-table.tsx'

/** A small chart of one or two lines from zero. A null is a gap. */
export type LineChart = {
  name: string
  lines: readonly { name: string; className: 'l1' | 'l2'; values: readonly (number | null)[] }[]
  /** A value in words; null = there is none. */
  words: (value: number | null) => string
  /** The end of the scale at least; absent = by the values. */
  top?: number
}

/**
 * Charts over the same minutes, read out together: by pointer, or with the arrow keys. Minutes before the first one are
 * hatched: then nothing was kept.
 */
export function Lines({
  label,
  times,
  spanMs,
  charts,
  file,
}: {
  label: string
  /** End of each minute, Unix ms, rising. */
  times: readonly number[]
  /** Width of all charts, to the last minute. */
  spanMs: number
  charts: readonly LineChart[]
  /** Name of the CSV file. */
  file: string
}) {
  const [at, setAt] = useState<number | null>(null)
  const [isTable, setTable] = useState(false)
  const last = times.length - 1
  const end = times[last] ?? 0
  const read = Math.min(at ?? last, last)
  const all = charts.flatMap(({ name, lines, words }) =>
    lines.map(({ name: of, values }) => ({ name: of === '' ? name : `${name}, ${of}`, values, words })),
  )
  const readOut = [
    `${clock(times[read] ?? 0)}:`,
    ...charts.map(
      ({ name, lines, words }) =>
        `${name} ${lines.map(({ values }) => words(values[read] ?? null)).join(', ')};`,
    ),
  ].join(' ')
  const move = (to: number) => setAt(Math.min(last, Math.max(0, to)))
  return (
    <figure class="chart">
      <div
        class="small-charts"
        role="slider"
        tabIndex={0}
        aria-label={`${label}: left and right read the minutes out`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, last)}
        aria-valuenow={Math.max(0, read)}
        aria-valuetext={readOut}
        onKeyDown={(event) => {
          const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
          if (by === undefined) return
          event.preventDefault()
          move(read + by)
        }}
        onPointerLeave={() => setAt(null)}
        onBlur={() => setAt(null)}
      >
        {charts.map((chart) => (
          <SmallChart
            key={chart.name}
            chart={chart}
            times={times}
            from={end - spanMs}
            end={end}
            read={read}
            isReading={at !== null}
            onRead={move}
          />
        ))}
      </div>
      <figcaption>
        <p class="secondary" aria-hidden="true">
          {at === null ? 'Latest minute' : `Minute to ${dayAndTime(times[read] ?? 0)}`}
        </p>
        <div class="actions">
          <Button kind="quiet" onClick={() => setTable(!isTable)}>
            {isTable ? 'Hide table' : 'Show as table'}
          </Button>
          <CsvButton
            file={file}
            rows={[
              ['minute', ...all.map(({ name }) => name)],
              ...times.map((time, index) => [
                utc(time),
                ...all.map(({ values }) => String(values[index] ?? '')),
              ]),
            ]}
          />
        </div>
      </figcaption>
      {isTable && (
        <TimesTable
          label={label}
          head="Minute to"
          times={times}
          timeText={clock}
          columns={all.map(({ name, values, words }) => ({
            name,
            text: (index) => words(values[index] ?? null),
          }))}
        />
      )}
    </figure>
  )
}

const HEIGHT = 84
const TOP = 6

function SmallChart({
  chart: { name, lines, words, top: least = 0 },
  times,
  from,
  end,
  read,
  isReading,
  onRead,
}: {
  chart: LineChart
  times: readonly number[]
  from: number
  end: number
  read: number
  isReading: boolean
  onRead: (index: number) => void
}) {
  const [width, ref] = useWidth()
  const id = useId()
  const values = lines.flatMap((line) => line.values.filter((value) => value !== null))
  const top = Math.max(least, niceTop(Math.max(0, ...values)))
  const x = (time: number) => (width * (time - from)) / Math.max(1, end - from)
  const y = (value: number) => TOP + HEIGHT * (1 - value / top)
  const began = x(times[0] ?? end)
  return (
    <div class="small-chart" ref={ref}>
      <p>
        {name}
        <b>
          {lines.map((line) => (
            <span key={line.name}>
              {lines.length > 1 && <span class={`swatch ${line.className}`} aria-hidden="true" />}
              {lines.length > 1 && <span class="secondary">{line.name} </span>}
              {words(line.values[read] ?? null)}
            </span>
          ))}
        </b>
      </p>
      <svg
        width={width}
        height={TOP + HEIGHT + 2}
        aria-hidden="true"
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect()
          const time = from + ((event.clientX - box.left) / Math.max(1, width)) * (end - from)
          const next = times.findIndex((each) => each >= time)
          onRead(next === -1 ? times.length - 1 : next)
        }}
      >
        <defs>
          <pattern id={id} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="hatch" width="1" height="6" />
          </pattern>
        </defs>
        {began > 1 && <rect x={0} y={TOP} width={began} height={HEIGHT} fill={`url(#${id})`} />}
        {[0, 0.5, 1].map((part) => (
          <line key={part} class="grid" x1={0} x2={width} y1={y(part * top)} y2={y(part * top)} />
        ))}
        {isReading && (
          <line
            class="reading-line"
            x1={x(times[read] ?? end)}
            x2={x(times[read] ?? end)}
            y1={TOP}
            y2={TOP + HEIGHT}
          />
        )}
        {lines.map((line) => (
          <g key={line.name}>
            <path class={`line-of ${line.className}`} d={pathOf(times, line.values, { x, y })} />
            {dotOf(times[read], line.values[read] ?? null, { x, y, className: line.className })}
          </g>
        ))}
      </svg>
      <p class="scale secondary" aria-hidden="true">
        <span>{clock(from)}</span>
        <span>to {words(top)}</span>
        <span>{clock(end)}</span>
      </p>
    </div>
  )
}

type Scales = { x: (time: number) => number; y: (value: number) => number }

/** Lines between neighbours; a value without neighbours is seen as the dot of a round cap. */
function pathOf(times: readonly number[], values: readonly (number | null)[], { x, y }: Scales): string {
  let isOpen = false
  return times
    .map((time, index) => {
      const value = values[index] ?? null
      if (value === null) {
        isOpen = false
        return ''
      }
      const point = `${x(time).toFixed(1)} ${y(value).toFixed(1)}`
      const step = isOpen ? `L${point}` : `M${point}h0`
      isOpen = true
      return step
    })
    .join('')
}

const dotOf = (
  time: number | undefined,
  value: number | null,
  { x, y, className }: Scales & { className: string },
) =>
  time === undefined || value === null ? null : (
    <circle class={`dot ${className}`} cx={Math.max(3, x(time) - 3)} cy={y(value)} r={3} />
  )

/** Drawn to the width that there is. */
function useWidth() {
  const ref = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(280)
  useEffect(() => {
    const element = ref.current
    if (element === null) return
    const seen = new ResizeObserver(([entry]) => {
      if (entry !== undefined) setWidth(Math.max(120, Math.floor(entry.contentRect.width)))
    })
    seen.observe(element)
    return () => seen.disconnect()
  }, [])
  return [width, ref] as const
}
