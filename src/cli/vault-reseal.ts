import type { Command } from './arguments.ts'

export const vaultResealCommand: Command = {
  name: 'vault reseal',
  about:
    're-encrypt recoverable keys with the first vault key of TOLLGATE_VAULT_KEY (operator root key only)',
  example: 'vault reseal',
  async run(given) {
    const reply = await (await given.client()).post<{ resealed: number; total: number }>('vault.reseal', {})
    given.print(`resealed ${reply.resealed} of ${reply.total} data keys with the first vault key`, reply)
  },
}
