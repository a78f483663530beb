import { readdir, statfs } from 'node:fs/promises'
import { countSpills } from '../data-dir/spill.ts'
import type { DatabaseAddress } from '../db/connect.ts'
import type { DataDirFigures, ProcessFigures } from '../observe/metrics.ts'
import { openFilesMax } from './open-files.ts'

/** What a scrape tells of this process. Open files are known on Linux only. */
export async function readProcess(startedAtMs: number): Promise<ProcessFigures> {
  const files = await readdir('/proc/self/fd').catch(() => null)
  const { user, system } = process.cpuUsage()
  return {
    startedAtMs,
    cpuSeconds: (user + system) / 1_000_000,
    residentBytes: process.memoryUsage.rss(),
    openFiles: files?.length ?? null,
    openFilesMax: openFilesMax(),
  }
}

/** @returns null when the folder cannot be read. */
export async function readDataDir(dataDir: string, address: DatabaseAddress): Promise<DataDirFigures | null> {
  try {
    const [{ bavail, blocks, bsize }, spills] = await Promise.all([
      statfs(dataDir),
      countSpills(dataDir, address),
    ])
    return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize, spills }
  } catch {
    return null // the metrics that do not need the folder are still of use
  }
}
