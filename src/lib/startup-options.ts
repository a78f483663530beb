/**
 * Parses the parameter `options` as Postgres does: words separated by blanks, a backslash before a blank inside a word.
 * Settings (`-c name=value`, `--name=value`) are separated, so that they can be sent with this program's own. The rest is
 * for a provider's proxy (`endpoint=…`, `project=…`, `reference=…`) and is sent unchanged.
 */
export function parseOptions(text: string): { settings: Record<string, string>; rest: string | null } {
  const words = [...text.matchAll(/(?:\\.|[^\\\s])+/gs)].map(([word]) => word)
  const settings: Record<string, string> = {}
  const rest: string[] = []
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? ''
    const setting = word === '-c' ? (words[++at] ?? '') : (/^(?:-c|--)(.+)$/s.exec(word)?.[1] ?? null)
    const [, name, value] =
      /^([a-z_][a-z0-9_.-]*)=(.*)$/is.exec((setting ?? '').replace(/\\(.)/gs, '$1')) ?? []
    if (name !== undefined && value !== undefined) settings[name.toLowerCase().replaceAll('-', '_')] = value
    else rest.push(word)
  }
  return { settings, rest: rest.length === 0 ? null : rest.join(' ') }
}
