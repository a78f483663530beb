import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A file system for one test, to be filled, write-protected, or cut from power. Only root may mount one. */
export type Disk = AsyncDisposable & { path: string }

/** A small file system that is soon full. @throws Error when this process may not mount one. */
export const mountSmall = ({ mebibytes }: { mebibytes: number }): Promise<Disk> =>
  mount('-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tollgate')

/** A file system with a journal, on a file that stands for the medium: the file contains only what was written back. */
export type RealDisk = Disk & {
  /** A second disk with the content that this one would have after a power loss now. */
  afterPowerLoss(): Promise<Disk>
}

/** @throws Error when this process may not mount one. */
export async function mountReal({ mebibytes }: { mebibytes: number }): Promise<RealDisk> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-medium-'))
  const medium = join(folder, 'medium')
  await run('truncate', '-s', `${mebibytes}M`, medium)
  await run('mkfs.ext4', '-q', '-F', medium)
  // The journal is written on request, not by the clock, so that a power loss takes everything that was not synced.
  const disk = await mount('-o', 'loop,commit=300', medium)
  return {
    path: disk.path,
    afterPowerLoss: async () => {
      const copy = `${medium}.${crypto.randomUUID()}`
      await run('cp', '--sparse=always', medium, copy)
      return await mount('-o', 'loop', copy)
    },
    [Symbol.asyncDispose]: async () => {
      await disk[Symbol.asyncDispose]()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function mount(...args: string[]): Promise<Disk> {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-disk-'))
  const remove = async () => {
    await run('umount', '-l', path).catch(() => {}) // it may not be mounted
    rmSync(path, { recursive: true, force: true })
  }
  try {
    await run('mount', ...args, path)
  } catch (cause) {
    await remove()
    throw cause
  }
  return { path, [Symbol.asyncDispose]: remove }
}

async function run(...command: string[]): Promise<void> {
  const child = Bun.spawn(command, { stdout: 'ignore', stderr: 'pipe' })
  if ((await child.exited) !== 0)
    throw new Error(`${command.join(' ')}: ${await new Response(child.stderr).text()}`)
}

/** True when this process may mount disks, so that {@link mountSmall} and {@link mountReal} work. */
export const MAY_MOUNT = process.getuid?.() === 0 && existsSync('/dev/loop-control') && (await mayMount())

if (!MAY_MOUNT) console.warn('skipped: tests that need a disk of their own, which only root may mount')

async function mayMount(): Promise<boolean> {
  const disk = await mountSmall({ mebibytes: 1 }).catch(() => null)
  await disk?.[Symbol.asyncDispose]()
  return disk !== null
}
