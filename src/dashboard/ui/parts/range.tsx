import { place, setQuery } from '../route.ts'

const RANGES = [
  { value: '24h', name: 'Last 24 hours', hours: 24 },
  { value: '3d', name: 'Last 3 days', hours: 72 },
  { value: '7d', name: 'Last 7 days', hours: 168 },
] as const

/** The range in the address. The current hour counts, so a day is it and the 23 before. */
export function useRange() {
  const asked = place.value.query.get('range')
  const { value, hours } = RANGES.find((each) => each.value === asked) ?? RANGES[0]
  return { value, start: () => Date.now() - (hours - 1) * 3_600_000 }
}

export function RangeSelect({ range }: { range: { value: string } }) {
  return (
    <label class="range">
      <span class="visually-hidden">Range</span>
      <select
        value={range.value}
        onChange={(event) => {
          const { value } = event.currentTarget
          setQuery({ range: value === '24h' ? null : value })
        }}
      >
        {RANGES.map(({ value, name }) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </label>
  )
}
