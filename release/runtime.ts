import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { run } from './command.ts'
import type { Lock } from './lock.ts'
import { Refusal } from './refusal.ts'
import type { Target } from './targets.ts'

/**
 * The Bun that a binary is made of, from the npm registry. Nobody else's Bun is used: its checksum is in bun.lock.
 * @param folder Where tarballs are kept from one release to the next.
 * @returns the path of the program, in `into`.
 */
export function runtimeOf(
  target: Target,
  { lock, folder, into }: { lock: Lock; folder: string; into: string },
) {
  const locked = lock.packages.get(target.runtime)
  if (locked === undefined) throw new Refusal([`bun.lock does not name ${target.runtime}`])
  mkdirSync(folder, { recursive: true })
  const tarball = join(folder, `${target.name}-${locked.version}.tgz`)
  if (!existsSync(tarball)) {
    const printed = run(
      ['npm', 'pack', `${locked.name}@${locked.version}`, '--silent', '--pack-destination', folder],
      { cwd: folder },
    )
    renameSync(join(folder, printed.split('\n').at(-1) ?? ''), tarball)
  }
  const integrity = `sha512-${new Bun.CryptoHasher('sha512').update(readFileSync(tarball)).digest('base64')}`
  if (integrity !== locked.integrity)
    throw new Refusal([`${tarball} is not the ${locked.name} of bun.lock: it has ${integrity}. Delete it.`])
  const unpacked = join(into, target.name)
  mkdirSync(unpacked, { recursive: true })
  run(['tar', '-xzf', tarball, '-C', unpacked, 'package/bin/bun'], { cwd: into })
  return join(unpacked, 'package/bin/bun')
}
