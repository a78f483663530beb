import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openWire } from '../support/wire.ts'

const CONNECTIONS = 50
const SENT = 'abcdefghijklmnopqrstuvwxyz'

/** A driver that pipelines matches answers by order: swapped messages would swap answers. */
test('a wire that stops being slow keeps messages in order', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-wire-'))
  try {
    const received: string[] = []
    const { promise: all, resolve } = Promise.withResolvers<void>()
    const database = createServer((socket) => {
      let text = ''
      socket.on('data', (bytes) => {
        text += bytes.toString()
        if (text.length === SENT.length && received.push(text) === CONNECTIONS) resolve()
      })
    })
    const socketPath = join(folder, 'database.sock')
    await new Promise<void>((listening) => database.listen(socketPath, listening))
    await using wire = await openWire({ kind: 'embedded', socketPath })
    const { address } = wire
    if (address.kind !== 'embedded') throw new Error('a wire to a socket is one')
    const clients: Socket[] = Array.from({ length: CONNECTIONS }, () => createConnection(address.socketPath))
    for (const [i, message] of [...SENT].entries()) {
      if (i % 8 === 1) wire.slow(10)
      if (i % 8 === 4) wire.slow(0)
      for (const client of clients) client.write(message)
      // Due messages and new ones are handled together, as on a busy machine.
      for (const since = performance.now(); i % 4 === 3 && performance.now() - since < 12; );
      await Bun.sleep(2)
    }
    await all
    expect(received).toEqual(Array(CONNECTIONS).fill(SENT))
    for (const client of clients) client.destroy()
    database.close()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
