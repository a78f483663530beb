/**
 * The parts of a path that a pattern names: `/dashboard/w/:workspace/keys/:id`.
 * @returns null when the path is another one.
 */
export function match(pattern: string, path: string): Record<string, string> | null {
  const [wanted, given] = [pattern.split('/'), path.replace(/\/$/, '').split('/')]
  if (wanted.length !== given.length) return null
  const found: Record<string, string> = {}
  for (const [index, part] of wanted.entries()) {
    const text = given[index] ?? ''
    if (part.startsWith(':')) found[part.slice(1)] = decoded(text)
    else if (part !== text) return null
  }
  return found
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
