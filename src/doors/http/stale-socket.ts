import { rmSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { StartError } from '../../errors.ts'

/** Removes the socket file that a killed server left. @throws StartError when a server answers on it. */
export async function removeStaleSocket(path: string): Promise<void> {
  const file = statSync(path, { throwIfNoEntry: false })
  if (file === undefined) return
  if (!file.isSocket())
    throw new StartError(
      `TOLLGATE_SOCKET ${path} is a file but not a socket; delete it, or set TOLLGATE_SOCKET to another path`,
    )
  const answers = await new Promise<boolean>((resolve) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
  if (answers)
    throw new StartError(
      `another server listens on TOLLGATE_SOCKET ${path}; stop it, or set TOLLGATE_SOCKET to another path`,
    )
  rmSync(path, { force: true })
}
