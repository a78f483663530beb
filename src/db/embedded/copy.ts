import { constants } from 'node:fs'
import { chmod, copyFile, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { connect, type DatabaseAddress } from '../connect.ts'

/**
 * Copies the files of a running embedded database as they are at one moment. All but what changes meanwhile is copied while the
 * server works; then it waits for a checkpoint and the rest. That Postgres has no other process: while a transaction is open
 * on the one session that it has, nothing writes its files.
 * @param to A folder that does not exist; its parent does.
 * @returns for how long statements of the server waited, ms.
 */
export async function copyRunning(
  address: DatabaseAddress,
  { from, to }: { from: string; to: string },
): Promise<{ waitedMs: number }> {
  const sql = connect(address, { connectionsMax: 1 })
  try {
    await mkdir(to, { mode: 0o700 })
    const beganAt = Date.now()
    await copyChanged(from, to, 0)
    let since = 0
    await sql.begin(async (tx) => {
      await tx`select 1`
      since = performance.now()
      await tx`checkpoint`
      const keepTurn = setInterval(() => void tx`select 1`.catch(() => {}), TURN_MS) // a silent transaction is ended
      try {
        await copyChanged(from, to, beganAt - CLOCK_MS)
      } finally {
        clearInterval(keepTurn)
      }
      await tx`select 1` // fails if the session was not ours until now
    })
    return { waitedMs: Math.round(performance.now() - since) }
  } finally {
    await sql.end({ timeout: 2 })
  }
}

/** Copies files that changed since then (Unix ms) or differ in size, and removes what is gone. */
async function copyChanged(from: string, to: string, sinceMs: number): Promise<void> {
  const [here, there] = await Promise.all([filesIn(from), filesIn(to)])
  for (const [name] of there) if (!here.has(name)) await rm(join(to, name), { recursive: true, force: true })
  for (const [name, file] of here) {
    const path = join(to, name)
    if (file === null) {
      await mkdir(path, { recursive: true, mode: 0o700 })
      continue
    }
    const old = there.get(name)
    if (old?.size === file.size && file.changedAt < sinceMs) continue
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    try {
      await copyFile(join(from, name), path, constants.COPYFILE_FICLONE)
      await chmod(path, 0o600)
    } catch (cause) {
      // Removed meanwhile: the next round removes it here too.
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'ENOENT')) throw cause
    }
  }
}

/** By path; null = a folder. */
async function filesIn(folder: string): Promise<Map<string, { size: number; changedAt: number } | null>> {
  const files = new Map<string, { size: number; changedAt: number } | null>()
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name)
    const name = path.slice(folder.length + 1)
    if (entry.isDirectory()) files.set(name, null)
    else {
      const found = await stat(path).catch(() => null)
      if (found !== null) files.set(name, { size: found.size, changedAt: found.mtimeMs })
    }
  }
  return files
}

/** Less than the time after which a silent transaction is ended. */
const TURN_MS = 5_000
/** Times of files may be rounded, and behind this clock. */
const CLOCK_MS = 2_000
