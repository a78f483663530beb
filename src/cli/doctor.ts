import { accessSync, constants, existsSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import {
  type Config,
  ConfigError,
  type Environment,
  exposedSecretFiles,
  readClientConfig,
  readConfig,
  unknownVariables,
} from '../config.ts'
import { type Finding, inspectDatabase, isProblem } from '../db/inspect.ts'
import { fileProblem } from '../lib/file-problem.ts'
import { connectionsOf } from '../server/deps.ts'
import { filesNeeded, openFilesMax } from '../server/open-files.ts'
import type { Command } from './arguments.ts'
import { CallError, Client } from './client.ts'

/** Checks everything that a start needs. Changes nothing. */
export const doctorCommand: Command = {
  name: 'doctor',
  about: 'check configuration, database, data dir and port; exit status 1 if there is a problem',
  isLocal: true,
  tellsUnknownVariables: true,
  example: 'doctor',
  async run(given) {
    const findings = await examine(given.terminal.environment)
    const problems = findings.filter(isProblem).length
    const warnings = findings.filter(({ status }) => status === 'warning').length
    const width = Math.max(...findings.map(({ check }) => check.length))
    const lines = findings.map(
      ({ status, check, text }) => `${status.padEnd(7)}  ${check.padEnd(width)}  ${text}`,
    )
    const sum = `${counted(problems, 'problem')}, ${counted(warnings, 'warning')}`
    given.print([...lines, '', sum].join('\n'), { isWell: problems === 0, findings })
    return problems === 0 ? 0 : 1
  },
}

const counted = (count: number, what: string) =>
  `${count === 0 ? 'no' : count} ${what}${count === 1 ? '' : 's'}`

async function examine(environment: Environment | undefined): Promise<Finding[]> {
  const unknown = unknownVariables(environment).map(({ variable, nearest }) =>
    finding(
      'warning',
      'configuration',
      `${variable} is not a variable of Tollgate; did you mean ${nearest}?`,
    ),
  )
  let config: Config
  try {
    config = readConfig(environment)
  } catch (cause) {
    if (!(cause instanceof ConfigError)) throw cause
    return [...unknown, finding('problem', 'configuration', cause.message)]
  }
  return [
    ...unknown,
    finding('ok', 'configuration', 'all variables are valid'),
    ...exposedSecretFiles(environment).map(({ from, path }) =>
      finding(
        'warning',
        'configuration',
        `${from} ${path} can be read by every user of this machine; chmod 600 it`,
      ),
    ),
    lookAtDataDir(config),
    ...lookAtSpace(config),
    ...lookAtOpenFiles(config),
    await lookAtPort(config, environment),
    ...(await lookAtDatabase(config)),
  ]
}

const finding = (status: Finding['status'], check: string, text: string): Finding => ({ check, status, text })

/** Tries to write: permissions say nothing about read-only file systems or the root user. */
function lookAtDataDir({ dataDir }: Config): Finding {
  try {
    if (existsSync(dataDir)) {
      if (!statSync(dataDir).isDirectory())
        return finding('problem', 'data dir', `${dataDir} is a file; set TOLLGATE_DATA_DIR to a folder`)
      const path = join(dataDir, `.doctor-${crypto.randomUUID()}`)
      writeFileSync(path, '', { mode: 0o600 })
      rmSync(path)
      return finding('ok', 'data dir', dataDir)
    }
    const above = nearestFolder(dataDir)
    if (!statSync(above).isDirectory())
      return finding('problem', 'data dir', `${above} is a file; set TOLLGATE_DATA_DIR to a folder`)
    accessSync(above, constants.W_OK)
    return finding('ok', 'data dir', `${dataDir}, which the first start creates`)
  } catch (cause) {
    return finding(
      'problem',
      'data dir',
      `${dataDir} cannot be written (${fileProblem(cause)}); make the user that runs Tollgate its owner, or set TOLLGATE_DATA_DIR`,
    )
  }
}

function nearestFolder(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : nearestFolder(dirname(path))
}

/** On a full disk an embedded database refuses changes, and spill files cannot be written. */
function lookAtSpace({ dataDir }: Config): Finding[] {
  const { bavail, bsize } = statfsSync(nearestFolder(dataDir))
  const mebibytes = Math.floor((bavail * bsize) / 2 ** 20)
  return mebibytes >= SPACE_MIB
    ? []
    : [
        finding(
          'warning',
          'data dir',
          `${dataDir} has ${mebibytes} MiB of free space; free at least ${SPACE_MIB} MiB`,
        ),
      ]
}

const SPACE_MIB = 512

/** A server accepts only as many connections as it may open files. How many clients will come is unknown here. */
function lookAtOpenFiles(config: Config): Finding[] {
  const limit = openFilesMax()
  const { all } = filesNeeded(config)
  if (limit === null) return []
  return [
    limit >= all
      ? finding('ok', 'open files', `${limit} allowed, at most ${all} needed`)
      : finding(
          'warning',
          'open files',
          `the limit is ${limit} and ${all} may be needed, so the server accepts fewer connections; raise the limit (ulimit -n, LimitNOFILE), or lower TOLLGATE_CONNECTIONS_MAX`,
        ),
  ]
}

/** Checks that the port is free, or that Tollgate itself uses it. */
async function lookAtPort(
  { listen: { host, port, socketPath } }: Config,
  environment: Environment | undefined,
): Promise<Finding> {
  const client = new Client(readClientConfig(environment))
  const { url, socketPath: asked } = client.config
  const place = asked ?? url
  try {
    const { services } = await client.get<{ services?: { database?: string } }>('liveness')
    if (services?.database !== undefined)
      return finding('ok', 'server', `Tollgate runs at ${place}; its database is ${services.database}`)
    return finding('problem', 'server', `another program answers at ${place}; stop it, or set PORT`)
  } catch (cause) {
    if (!(cause instanceof CallError)) throw cause
    if (cause.status !== null)
      return finding('problem', 'server', `${place} answers, but not as a healthy Tollgate: ${cause.message}`)
  }
  if (port === null) return finding('ok', 'server', `Tollgate does not run at ${socketPath}`)
  const failure = await new Promise<NodeJS.ErrnoException | null>((resolve) => {
    const server = createServer()
    server.once('error', resolve)
    server.listen({ host, port }, () => server.close(() => resolve(null)))
  })
  if (failure === null)
    return finding('ok', 'server', `Tollgate does not run at ${place}; HOST ${host}, PORT ${port} is free`)
  const remedy =
    failure.code === 'EADDRINUSE'
      ? 'is used by another program; stop that program, or set PORT'
      : `cannot be used (${failure.code}); set HOST to an address of this machine, or PORT to another port`
  return finding('problem', 'server', `HOST ${host}, PORT ${port} ${remedy}`)
}

async function lookAtDatabase(config: Config): Promise<Finding[]> {
  if (config.databaseUrl === null) {
    const folder = join(config.dataDir, 'postgres')
    const state = existsSync(folder) ? 'in' : 'not created yet; the first start creates it in'
    return [
      finding('ok', 'database', `embedded, ${state} ${folder}; set DATABASE_URL to use your own Postgres`),
    ]
  }
  const address = { kind: 'url' as const, url: config.databaseUrl }
  return (await inspectDatabase(address, { connections: connectionsOf(config) })).findings
}
