import { createReadStream, existsSync } from 'node:fs'
import { join } from 'node:path'
import { run } from './command.ts'

/** SHA256SUMS of all files below a folder, as `sha256sum --check` reads it. */
export async function sumsOf(folder: string): Promise<string> {
  const names = [...new Bun.Glob('**/*').scanSync({ cwd: folder, onlyFiles: true, dot: true })]
  const lines: string[] = []
  for (const name of names.filter((each) => !each.startsWith('SHA256SUMS')).sort()) {
    const hasher = new Bun.CryptoHasher('sha256')
    for await (const chunk of createReadStream(join(folder, name))) hasher.update(chunk)
    lines.push(`${hasher.digest('hex')}  ${name}\n`)
  }
  return lines.join('')
}

/** What is not the same in two texts of sums: a line for each file. */
export function differencesOf(given: string, made: string): string[] {
  const read = (text: string) =>
    new Map(
      text.split('\n').flatMap((line) => (line === '' ? [] : [[line.slice(66), line.slice(0, 64)] as const])),
    )
  const [there, here] = [read(given), read(made)]
  return [...new Set([...there.keys(), ...here.keys()])].sort().flatMap((name) => {
    if (!here.has(name)) return [`${name} is not made from these sources`]
    if (!there.has(name)) return [`${name} is not among the given sums`]
    return here.get(name) === there.get(name) ? [] : [`${name} is another file`]
  })
}

/** Signs SHA256SUMS with minisign, which asks for the password of the key if it has one. */
export function sign(folder: string, { key, version }: { key: string; version: string }): void {
  run(
    [
      'minisign',
      '-S',
      '-s',
      key,
      '-m',
      'SHA256SUMS',
      '-t',
      `tollgate ${version}`,
      '-c',
      `tollgate ${version}`,
    ],
    {
      cwd: folder,
    },
  )
  if (!existsSync(join(folder, 'SHA256SUMS.minisig'))) throw new Error('minisign made no signature')
}
