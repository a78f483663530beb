#!/usr/bin/env node
/**
 * Starts the Tollgate of this machine, which lies in a package of its own: npm installs only the one that fits. Signals and
 * the exit status are passed on. Plain JavaScript for Node 18 and later; Bun runs it too.
 */
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'

const { platform, arch } = process
// The report names the C library only where it is glibc. Without this it looks up every address that is in use.
if (process.report) process.report.excludeNetwork = true
const isMusl = platform === 'linux' && process.report.getReport().header.glibcVersionRuntime === undefined
const name = `@tollgate/${platform}-${arch}${isMusl ? '-musl' : ''}`

/** @returns never */
function fail(message) {
  process.stderr.write(`tollgate: ${message}\n`)
  process.exit(1)
}

function programOf() {
  const require = createRequire(import.meta.url)
  const known = Object.keys(require('../package.json').optionalDependencies)
  if (!known.includes(name))
    return fail(
      `there is no Tollgate for ${name.slice('@tollgate/'.length)}; there is for ${known.map((each) => each.slice('@tollgate/'.length)).join(', ')}`,
    )
  try {
    return join(dirname(require.resolve(`${name}/package.json`)), 'bin/tollgate')
  } catch {
    return fail(
      `the package ${name} is missing; install again, with optional dependencies (npm install --include=optional)`,
    )
  }
}

// Before the program starts: a signal that comes first would end this process and leave the program alone. A terminal signals
// both; Tollgate takes the second signal for a repetition.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']) process.on(signal, () => child.kill(signal))

const child = spawn(programOf(), process.argv.slice(2), {
  stdio: 'inherit',
  // As in the image: otherwise a server that was quiet for ten seconds lets requests wait for its garbage collection.
  env: { BUN_IDLE_GC_SECONDS: '300', ...process.env },
})
child.on('error', (cause) => fail(`${name} cannot be started: ${cause.message}`))

child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code)
  // Ended by a signal: so does this process. Where that does not end it, it says the same with a shell's status.
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
  process.exit(128 + constants.signals[signal])
})
