import {
  accessSync,
  constants,
  existsSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism, totalmem, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import type { Config } from '../../config.ts'
import { type Finding, finding } from '../../db/inspect.ts'
import { fileProblem } from '../../lib/file-problem.ts'
import { filesNeeded, openFilesMax } from '../../server/open-files.ts'

/** What `tollgate doctor` finds out about this machine. */
export function examineMachine(config: Config): Finding[] {
  return [
    lookAtDataDir(config),
    ...lookAtOwner(config, userInfo().uid),
    lookAtSpace(config.dataDir, freeMebibytes(config.dataDir)),
    ...lookAtOpenFiles(config, openFilesMax()),
    lookAtMemory(config, memoryMebibytes()),
    lookAtCores(config, availableParallelism()),
    ...lookAtProcessor(process.arch, processorFlags()),
  ]
}

/** Tries to write: permissions say nothing about read-only file systems or the root user. */
export function lookAtDataDir({ dataDir }: Pick<Config, 'dataDir'>): Finding {
  const isFile = (path: string) =>
    finding('fail', 'data dir', `${path} is a file; set TOLLGATE_DATA_DIR to a folder`)
  try {
    if (existsSync(dataDir)) {
      if (!statSync(dataDir).isDirectory()) return isFile(dataDir)
      const path = join(dataDir, `.doctor-${crypto.randomUUID()}`)
      writeFileSync(path, '', { mode: 0o600 })
      rmSync(path)
      return finding('ok', 'data dir', dataDir)
    }
    const above = nearestFolder(dataDir)
    if (!statSync(above).isDirectory()) return isFile(above)
    accessSync(above, constants.W_OK)
    return finding('ok', 'data dir', `${dataDir}, which the first start creates`)
  } catch (cause) {
    return finding(
      'fail',
      'data dir',
      `${dataDir} cannot be written (${fileProblem(cause)}); make the user that runs Tollgate its owner, or set TOLLGATE_DATA_DIR`,
    )
  }
}

function nearestFolder(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : nearestFolder(dirname(path))
}

/** Files with secrets in the data directory. */
const SECRET_FILES = ['root-key', 'vault-key']

/** Whether the data directory and its secrets are this user's alone. @param uid -1 = the system has no owners. */
export function lookAtOwner({ dataDir }: Pick<Config, 'dataDir'>, uid: number): Finding[] {
  if (uid === -1 || !existsSync(dataDir) || !statSync(dataDir).isDirectory()) return []
  const paths = [
    dataDir,
    ...SECRET_FILES.map((name) => join(dataDir, name)).filter((path) => existsSync(path)),
  ]
  const found = paths.flatMap((path): Finding[] => {
    const { uid: owner, mode } = statSync(path)
    // The root user may do everything, and runs the doctor for a service that has its own user.
    if (owner !== uid && uid !== 0)
      return [
        finding(
          'warn',
          'owner',
          `${path} belongs to another user (${owner}) than the one that runs this (${uid}); run the doctor as the user of the service, or: chown ${uid} ${path}`,
        ),
      ]
    const isOpen = (mode & 0o077) !== 0
    const wanted = path === dataDir ? '700' : '600'
    return isOpen
      ? [
          finding(
            'warn',
            'owner',
            `${path} has mode ${(mode & 0o777).toString(8)}, so that other users of this machine may get at secrets; run: chmod ${wanted} ${path}`,
          ),
        ]
      : []
  })
  return found.length > 0
    ? found
    : [finding('ok', 'owner', 'the data dir and its secrets are open to their owner alone')]
}

function freeMebibytes(dataDir: string): number {
  const { bavail, bsize } = statfsSync(nearestFolder(dataDir))
  return Math.floor((bavail * bsize) / 2 ** 20)
}

/** On a full disk an embedded database refuses changes, and spill files cannot be written. */
export function lookAtSpace(dataDir: string, mebibytes: number): Finding {
  return mebibytes >= SPACE_MIB
    ? finding('ok', 'disk', `${mebibytes} MiB free`)
    : finding('warn', 'disk', `${dataDir} has ${mebibytes} MiB of free space; free at least ${SPACE_MIB} MiB`)
}
const SPACE_MIB = 512

/** A server accepts only as many connections as it may open files. How many clients will come is unknown here. */
export function lookAtOpenFiles(config: Config, limit: number | null): Finding[] {
  const { all } = filesNeeded(config)
  if (limit === null) return []
  return [
    limit >= all
      ? finding('ok', 'open files', `${limit} allowed, at most ${all} needed`)
      : finding(
          'warn',
          'open files',
          `the limit is ${limit} and ${all} may be needed, so the server accepts fewer connections; raise the limit (ulimit -n, LimitNOFILE), or lower TOLLGATE_CONNECTIONS_MAX`,
        ),
  ]
}

/** Of the machine, or of the container if that is less. */
function memoryMebibytes(): number {
  return Math.floor(Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) / 2 ** 20)
}

/** Compares what the budgets add up to. A budget is used only when there is that much to keep. */
export function lookAtMemory(config: Config, mebibytes: number): Finding {
  const { threads, listen, keyCacheBytesMax, limiterBytesMax, databaseUrl } = config
  const budgets = limiterBytesMax + threads.http * (keyCacheBytesMax + listen.memoryBytesMax)
  const own =
    OWN_MIB + THREAD_MIB * (threads.http + threads.shards) + (databaseUrl === null ? EMBEDDED_MIB : 0)
  const needed = Math.ceil(budgets / 2 ** 20) + own
  return mebibytes >= needed
    ? finding('ok', 'memory', `${mebibytes} MiB, at most about ${needed} needed`)
    : finding(
        'warn',
        'memory',
        `there are ${mebibytes} MiB, and about ${needed} may be needed when all budgets are full; lower TOLLGATE_LIMITER_MEMORY_MIB or TOLLGATE_KEY_CACHE_MIB, or add memory`,
      )
}
// Rounded up from a running server without load (VmRSS): the program, each thread, and the embedded database.
const OWN_MIB = 128
const THREAD_MIB = 32
const EMBEDDED_MIB = 256

export function lookAtCores({ threads: { http, shards } }: Config, cores: number): Finding {
  const threads = `${http} HTTP thread${http === 1 ? '' : 's'} and ${shards} shard${shards === 1 ? '' : 's'}`
  return http + shards <= Math.max(2, cores)
    ? finding('ok', 'cores', `${cores}, for ${threads}`)
    : finding(
        'warn',
        'cores',
        `${threads} share ${cores} core${cores === 1 ? '' : 's'} and wait for each other; lower TOLLGATE_HTTP_THREADS and TOLLGATE_SHARDS, or leave them unset`,
      )
}

/** Of the first core, as Linux names them; null = unknown. */
function processorFlags(): string[] | null {
  try {
    return /^flags\s*:\s*(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1]?.split(' ') ?? null
  } catch {
    return null
  }
}

/** Bun's usual build for x64 has instructions of AVX2 in it. */
export function lookAtProcessor(arch: string, flags: readonly string[] | null): Finding[] {
  if (arch !== 'x64' || flags === null) return []
  return [
    flags.includes('avx2')
      ? finding('ok', 'processor', 'has AVX2')
      : finding(
          'warn',
          'processor',
          'it has no AVX2, with which the binary and Bun are built: a server may end with an illegal instruction; use another machine, or show AVX2 to the virtual machine',
        ),
  ]
}
