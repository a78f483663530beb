import type { Command } from './arguments.ts'
import { Client } from './client.ts'

export const vaultResealCommand: Command = {
  name: 'vault reseal',
  about: 'seal recoverable keys with the first of the server’s vault keys (operator root key only)',
  async run(given) {
    const reply = await new Client().post<{ resealed: number; total: number }>('vault.reseal', {})
    given.print(`resealed ${reply.resealed} of ${reply.total} data keys with the first master key`, reply)
  },
}
