import { type AnySql, connect, type DatabaseAddress } from '../db/connect.ts'
import { type Finding, finding } from '../db/inspect.ts'
import { fleetName, separation } from '../lib/fleet-url.ts'
import { type FleetOptions, openEngine } from './open-engine.ts'
import { type FleetRow, fleetMembers, isFleetThere, readFleet } from './store.ts'

const CHECK = 'shared limits'

/** For `tollgate doctor`: whether a server with these settings may share limits. Changes nothing. */
export async function examineFleet(fleet: FleetOptions, database: DatabaseAddress): Promise<Finding[]> {
  const here = fleetName(fleet.address)
  const sql = connect(database, { connectionsMax: 1 })
  // Exchanges need an id of their own; questions do not.
  const engine = await openEngine(fleet, { database, serverId: 1 })
  try {
    const found = await engine.found()
    if (found.kind === 'failed')
      return [finding('fail', CHECK, `${here} cannot be asked: ${found.cause.message}`)]
    const { row, others } = await knownOf(sql)
    const [other] = others
    if (other !== undefined && row?.kind !== fleet.address.kind)
      return [
        finding(
          'fail',
          CHECK,
          `TOLLGATE_FLEET is ${here}, but servers on this database use ${other.engine}; set the same, or stop them first`,
        ),
      ]
    if (found.fleetId !== null && found.fleetId !== row?.engineId)
      return [finding('fail', CHECK, `servers of another database use ${here}; ${separation(fleet.address)}`)]
    if (other !== undefined && fleet.address.kind === 'redis' && found.fleetId === null)
      return [
        finding(
          'fail',
          CHECK,
          `${here} is not what servers on this database use, which is ${other.engine}; set the same, or stop them first`,
        ),
      ]
    const warnings = await engine.warnings()
    const users = other === undefined ? 'no server uses it now' : `${others.length} servers use it`
    return [
      finding('ok', CHECK, `${here} answers; ${users}`),
      ...warnings.map((text) => finding('warn', CHECK, text)),
    ]
  } finally {
    await Promise.all([engine.close(), sql.end({ timeout: 1 }).catch(() => {})]) // it served only the checks
  }
}

/** A database of before sql/0050 has no server that shares limits. */
async function knownOf(sql: AnySql): Promise<{
  row: FleetRow | null
  others: Awaited<ReturnType<typeof fleetMembers>>
}> {
  if (!(await isFleetThere(sql))) return { row: null, others: [] }
  return { row: await readFleet(sql), others: await fleetMembers(sql) }
}
