import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = join(import.meta.dir, '../..')

/**
 * The release before this one, as the sources of its commit: the last tag `v…` before HEAD, or the commit in the file
 * `previous` while there is none. In a clone without history the commit is fetched.
 * @returns its folder, ready to run.
 * @throws Error when the commit is not to be had: what this release does to the one before must not go untested.
 */
export async function previousRelease(): Promise<string> {
  const commit = await commitOf()
  const folder = join(tmpdir(), `tollgate-previous-${process.getuid?.() ?? 0}-${commit}`)
  if (existsSync(folder)) return folder
  const part = mkdtempSync(`${folder}-part-`)
  await run(root, `git archive ${commit} | tar -x -C "${part}"`)
  // It runs with the packages of today as long as it asks for the same ones.
  const isSame = readFileSync(join(part, 'bun.lock'), 'utf8') === readFileSync(join(root, 'bun.lock'), 'utf8')
  if (isSame) symlinkSync(join(root, 'node_modules'), join(part, 'node_modules'))
  else await run(part, `"${process.execPath}" install --frozen-lockfile --production --ignore-scripts`)
  try {
    renameSync(part, folder) // of several test files at once, the first
  } catch (cause) {
    rmSync(part, { recursive: true })
    if (!existsSync(folder)) throw cause
  }
  return folder
}

async function commitOf(): Promise<string> {
  const tag = await run(root, 'git describe --tags --abbrev=0 --match "v[0-9]*" HEAD^').catch(() => null)
  const commit = tag ?? readFileSync(join(import.meta.dir, 'previous'), 'utf8').trim()
  const isThere = () => run(root, `git rev-parse --verify --quiet "${commit}^{commit}"`)
  return await isThere().catch(async () => {
    await run(root, `git fetch --quiet --depth 1 origin ${commit}`).catch(() => {})
    return await isThere().catch((cause: unknown) => {
      throw new Error(
        `the commit of the release before (${commit}) is not in this clone; fetch it: git fetch --unshallow --tags`,
        { cause },
      )
    })
  })
}

/** @returns what the command wrote, without the line end. @throws Error with what it wrote to stderr. */
async function run(folder: string, command: string): Promise<string> {
  const child = Bun.spawn(['bash', '-o', 'pipefail', '-c', command], {
    cwd: folder,
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  if (code !== 0) throw new Error(`${command}: ${err.trim() || `exit status ${code}`}`)
  return out.trim()
}
