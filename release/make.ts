import { copyFileSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { git } from './checks.ts'
import { run } from './command.ts'
import { releasedDockerfile } from './image.ts'
import { readLock } from './lock.ts'
import { binaryArchive, launcherPackage, platformPackage } from './packages.ts'
import { runtimeOf } from './runtime.ts'
import { sbomOf } from './sbom.ts'
import { sumsOf } from './sums.ts'
import { TARGETS, type Target } from './targets.ts'

/**
 * Makes all files of a release, in a new folder. What is built is the commit, unpacked into a folder of its own with the
 * packages of bun.lock: nothing else in the clone has a part in it.
 *
 * @param options.folder The clone.
 * @param options.into Is emptied first.
 * @param options.say Called before each step.
 */
export async function makeRelease(options: {
  folder: string
  into: string
  version: string
  say: (line: string) => void
}): Promise<void> {
  const { folder, into, version, say } = options
  const work = mkdtempSync(join(tmpdir(), 'tollgate-release-'))
  try {
    const sources = join(work, 'sources')
    mkdirSync(sources)
    const commit = git(folder, 'rev-parse', 'HEAD')
    const atSeconds = Number(git(folder, 'log', '-1', '--format=%ct'))
    say(`sources of ${commit.slice(0, 12)}, ${new Date(atSeconds * 1000).toISOString()}`)
    run(['git', 'archive', '--output', join(work, 'sources.tar'), 'HEAD'], { cwd: folder })
    run(['tar', '-xf', join(work, 'sources.tar'), '-C', sources], { cwd: work })
    run([process.execPath, 'install', '--frozen-lockfile', '--production', '--ignore-scripts'], {
      cwd: sources,
    })

    rmSync(into, { recursive: true, force: true })
    for (const name of ['npm', 'unsigned', 'image/amd64', 'image/arm64', 'image/data'])
      mkdirSync(join(into, name), { recursive: true })
    writeFileSync(join(into, 'npm', `tollgate-${version}.tgz`), launcherPackage(sources, atSeconds))
    writeFileSync(
      join(into, 'image/Dockerfile'),
      releasedDockerfile(readFileSync(join(sources, 'Dockerfile'), 'utf8'), commit),
    )
    writeFileSync(
      join(into, 'sbom.cdx.json'),
      `${JSON.stringify(await sbomOf(sources, { atSeconds }), null, 2)}\n`,
    )
    writeFileSync(join(into, 'unsigned/README.md'), UNSIGNED)
    const lock = readLock(sources)
    const targets: readonly Target[] = TARGETS
    for (const target of targets) {
      say(target.name)
      const runtime = runtimeOf(target, { lock, folder: join(folder, 'dist/runtimes'), into: work })
      // Its name is inside the binary.
      const file = join(work, target.name, 'tollgate')
      run(
        [
          ...[process.execPath, 'src/build.ts', file, '--commit', commit],
          ...['--target', `bun-${target.name}`, '--runtime', runtime],
        ],
        { cwd: sources },
      )
      const binary = readFileSync(file)
      const own = target.isUnsigned === true ? 'unsigned' : '.'
      const npm = target.isUnsigned === true ? 'unsigned' : 'npm'
      writeFileSync(
        join(into, own, `tollgate-${version}-${target.name}.tar.gz`),
        binaryArchive(sources, target, binary, atSeconds),
      )
      writeFileSync(
        join(into, npm, `tollgate-${target.name}-${version}.tgz`),
        platformPackage(sources, target, binary, atSeconds),
      )
      if (target.image !== undefined) moveOrCopy(file, join(into, 'image', target.image, 'tollgate'))
      rmSync(join(work, target.name), { recursive: true })
    }

    say('sums')
    writeFileSync(join(into, 'SHA256SUMS'), await sumsOf(into))
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

const UNSIGNED = `# Not to be published

The signature of these programs does not match, so macOS may end them at their start. Sign them on a Mac with
\`codesign --force --sign <identity> tollgate\`, and try them there, before anybody gets them.
`

/** The folder for temporary files may be on another disk. */
function moveOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to)
  }
}
