/** The end of a scale from zero: four equal steps with round numbers, little above the largest value. */
export function niceTop(max: number): number {
  if (max <= 4) return 4
  const size = 10 ** Math.floor(Math.log10(max))
  const tops = FACTORS.map((factor) => Math.round(factor * size))
  return tops.find((top) => top >= max && top % 4 === 0) ?? 20 * size
}

const FACTORS = [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 4.8, 6, 8, 10, 12, 16, 20]
