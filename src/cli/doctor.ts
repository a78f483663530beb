import { existsSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Config,
  configProblems,
  type Environment,
  exposedSecretFiles,
  readConfig,
  unknownVariables,
} from '../config.ts'
import { connect } from '../db/connect.ts'
import { examineDatabase, lookAtServers } from '../db/examine.ts'
import { explain } from '../db/explain.ts'
import { type Finding, finding, inspectDatabase, isFailure } from '../db/inspect.ts'
import { foundDatabaseId } from '../db/settings.ts'
import { examineFleet } from '../fleet/examine-fleet.ts'
import { readDatabaseUrl } from '../lib/database-url.ts'
import { VERSION } from '../lib/version.ts'
import { connectionsOf } from '../server/deps.ts'
import { findSealedIfThere, type Sealed } from '../vault/admit.ts'
import type { Command } from './arguments.ts'
import { lookAtPort, lookAtPublicUrl, lookAtSpills } from './doctor/around.ts'
import { examineMachine } from './doctor/machine.ts'
import { lookAtVault } from './doctor/vault.ts'

type Area = 'configuration' | 'machine' | 'database' | 'around'
/** One line of the result. Its fields are contract: docs/how-to/postgres.md. */
export type DoctorFinding = { area: Area } & Finding

/** Checks everything that a server needs. Changes nothing, so that it is safe beside servers. */
export const doctorCommand: Command = {
  name: 'doctor',
  about: 'check configuration, machine, database and surroundings; exit status 1 if a server cannot run',
  isLocal: true,
  tellsUnknownVariables: true,
  example: 'doctor',
  async run(given) {
    const findings = await examine(given.terminal.environment)
    const failures = findings.filter(isFailure).length
    const warnings = findings.filter(({ status }) => status === 'warn').length
    const widths = [AREA_WIDTH, Math.max(...findings.map(({ check }) => check.length))] as const
    const lines = findings.map(
      ({ area, status, check, text }) =>
        `${status.padEnd(4)}  ${area.padEnd(widths[0])}  ${check.padEnd(widths[1])}  ${text}`,
    )
    const sum = `${counted(failures, 'problem')}, ${counted(warnings, 'warning')}`
    given.print([...lines, '', sum].join('\n'), { version: VERSION, isWell: failures === 0, findings })
    return failures === 0 ? 0 : 1
  },
}

const AREA_WIDTH = 'configuration'.length

const counted = (count: number, what: string) =>
  `${count === 0 ? 'no' : count} ${what}${count === 1 ? '' : 's'}`

async function examine(environment: Environment | undefined): Promise<DoctorFinding[]> {
  const unknown = unknownVariables(environment)
  const wrong = configProblems(environment).filter(
    ({ variable }) => !unknown.some((each) => each.variable === variable),
  )
  const configuration = [
    ...unknown.map(({ variable, nearest }) =>
      finding(
        'warn',
        'variables',
        `${variable} is not a variable of Tollgate and has no effect; did you mean ${nearest}?`,
      ),
    ),
    ...wrong.map(({ message }) => finding('fail', 'variables', message)),
  ]
  if (wrong.length > 0) return within('configuration', configuration)
  const config = readConfig(environment)
  const { findings, databaseId, sealed, servers, fleet } = await lookAtDatabase(config)
  return [
    ...within('configuration', [
      ...configuration,
      finding('ok', 'variables', 'all values are valid'),
      ...lookAtSecretFiles(environment),
    ]),
    ...within('machine', [...examineMachine(config), await lookAtPort(config, environment)]),
    ...within('database', findings),
    ...within('around', [
      await lookAtPublicUrl(config.publicUrl),
      ...servers,
      ...fleet,
      await lookAtSpills(config, databaseId),
      ...(await lookAtVault(config, sealed)),
    ]),
  ]
}

const within = (area: Area, findings: readonly Finding[]): DoctorFinding[] =>
  findings.map((each) => ({ area, ...each }))

const lookAtSecretFiles = (environment: Environment | undefined): Finding[] =>
  exposedSecretFiles(environment).map(({ from, path }) =>
    finding(
      'warn',
      'secret files',
      `${from} ${path} can be read by every user of this machine; run: chmod 600 ${path}`,
    ),
  )

/** What the database says, and what other checks need of it. An embedded one is left alone: a server may have it open. */
async function lookAtDatabase(config: Config): Promise<{
  findings: Finding[]
  databaseId: string | undefined
  sealed: Sealed | null
  servers: Finding[]
  fleet: Finding[]
}> {
  const nothing = { databaseId: undefined, sealed: null, servers: [], fleet: [] }
  if (config.databaseUrl === null) {
    const folder = join(config.dataDir, 'postgres')
    const state = existsSync(folder) ? 'in' : 'not created yet; the first start creates it in'
    const text = `embedded, ${state} ${folder}; set DATABASE_URL to use your own Postgres`
    return { ...nothing, findings: [finding('ok', 'database', text)] }
  }
  const { address, findings } = await inspectDatabase(
    { kind: 'url', url: config.databaseUrl },
    { connections: connectionsOf(config) },
  )
  if (findings.some(isFailure) || address.kind !== 'url') return { ...nothing, findings }
  const sql = connect(address, { connectionsMax: 1 })
  try {
    const more = await examineDatabase(sql, address)
    return {
      findings: [...findings, ...more.findings],
      databaseId: await foundDatabaseId(sql),
      sealed: await findSealedIfThere(sql),
      servers: [lookAtServers(more.servers)],
      fleet: config.fleet === null ? [] : await examineFleet(config.fleet, address),
    }
  } catch (cause) {
    const isTheirs = cause instanceof Error && 'code' in cause
    if (!isTheirs) throw cause
    const text = explain(cause, readDatabaseUrl(address.url))
    return { ...nothing, findings: [...findings, finding('fail', 'connection', text)] }
  } finally {
    await sql.end({ timeout: 1 }).catch(() => {}) // it served only the checks
  }
}
