import type { PGlite } from '@electric-sql/pglite'
import type { Session } from './wire-server.ts'

/**
 * PGlite as the wire server needs it: protocol bytes in, protocol bytes out.
 *
 * PGlite's usual call (0.5.14) also parses every answer into rows and keeps them for a later call that never comes: some
 * hundred bytes for each message, for the life of the process. A streamed answer is only passed on, to the last receiver
 * that was set.
 * @throws Error when answers are not streamed: PGlite has changed.
 */
export async function sessionOf(database: PGlite): Promise<Session> {
  let answered: Uint8Array[] = []
  const takeAnswer = () => {
    const [first = EMPTY, ...more] = answered
    answered = []
    return more.length === 0 ? first : Buffer.concat([first, ...more])
  }
  const session: Session = {
    execProtocolRawSync(messages) {
      database.execProtocolRawSync(messages)
      return takeAnswer()
    },
    isInTransaction: () => database.isInTransaction(),
  }
  await database.execProtocolRawStream(SYNC, {
    syncToFs: false,
    onRawData: (bytes) => answered.push(bytes.slice()), // Postgres reuses its buffer
  })
  const isHandedOver = takeAnswer().length > 0
  if (!isHandedOver || session.execProtocolRawSync(SYNC).length === 0)
    throw new Error('PGlite has changed how it hands over answers')
  return session
}

const EMPTY = new Uint8Array(0)
/** A Sync message; its answer is only ReadyForQuery. */
const SYNC = new Uint8Array([0x53, 0, 0, 0, 4])
