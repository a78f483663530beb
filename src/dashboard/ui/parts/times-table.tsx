import { utc } from '../format.ts'

/** A chart as a table: a row for each time, a column for each of its lines. */
export function TimesTable({
  label,
  head,
  times,
  timeText,
  columns,
}: {
  /** Of the chart. */
  label: string
  /** What a time is: "Hour". */
  head: string
  times: readonly number[]
  timeText: (time: number) => string
  /** `text` gets the place of the time. */
  columns: readonly { name: string; text: (index: number) => string }[]
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it
    <section class="scrolling" tabIndex={0} aria-label={`${label}, as a table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">{head}</th>
            {columns.map(({ name }) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.map((time, index) => (
            <tr key={time}>
              <th scope="row" title={utc(time)}>
                {timeText(time)}
              </th>
              {columns.map(({ name, text }) => (
                <td key={name} class="number">
                  {text(index)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}
