import type { PGlite } from '@electric-sql/pglite'
import type { Session } from './wire-server.ts'

/**
 * PGlite as the wire server asks it: bytes in, bytes out, and nothing else.
 *
 * Asked in its own way (0.5.14) it also takes every answer apart, to rows of texts, and keeps them all for a call of another
 * kind that would fetch them and never comes: some hundred bytes for each message, for as long as the process lives. An answer
 * that is streamed is only handed over, and where to stays as it was said last.
 * @throws Error when answers do not come that way: PGlite has changed.
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
    onRawData: (bytes) => answered.push(bytes.slice()), // Postgres uses its buffer again
  })
  const isHandedOver = takeAnswer().length > 0
  if (!isHandedOver || session.execProtocolRawSync(SYNC).length === 0)
    throw new Error('PGlite has changed how it hands over answers')
  return session
}

const EMPTY = new Uint8Array(0)
/** Asks for no more than "ready". */
const SYNC = new Uint8Array([0x53, 0, 0, 0, 4])
