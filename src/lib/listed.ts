/** A message's list of many texts: `a, b, and 5 more`. */
export function listed(texts: readonly (string | number)[], max = 20): string {
  const shown = texts.slice(0, max).join(', ')
  return texts.length > max ? `${shown}, and ${texts.length - max} more` : shown
}
